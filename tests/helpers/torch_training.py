"""Training as users of torch do it: AdamW, a linear schedule with warmup, clipping; and a loss written in torch."""

import torch
import transformers


def trajectory(model, loss_of, batches, rate, warmup):
    """Losses, and gradient norms before clipping, of one step a batch.

    `loss_of(model, batch)` gives the loss; `rate` is the `OptimizerConfig`, whose decay spares biases and LayerNorms.
    """
    torch.set_num_threads(1)  # so small a model gains nothing by more, and beside other work loses much
    model.train()
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "norm" in name.lower()]
    exempt = {id(p) for p in plain}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if id(p) not in exempt], "weight_decay": rate.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=rate.peak_learning_rate,
        betas=(rate.beta1, rate.beta2),
        eps=rate.epsilon,
    )
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, len(batches))
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), rate.clip_norm).item())
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses, norms


def contrastive_loss(model, batch, temperature):
    """Mean of the tokens of a `BertModel`, unit length, cosines of positives over the temperature, cross entropy."""
    positive, vectors = batch["positives"] > 0, []
    for side in range(batch["input_ids"].shape[1]):
        ids, mask = (torch.tensor(batch[name][positive, side]).long() for name in ("input_ids", "attention_mask"))
        hidden = model(ids, mask).last_hidden_state
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        vectors.append(torch.nn.functional.normalize(mean))
    cosines = vectors[0] @ torch.cat(vectors[1:]).T
    return torch.nn.functional.cross_entropy(cosines / temperature, torch.arange(int(positive.sum())))
