"""The main function of `bert-jax finetune`, and the steps that it calls.

batch_shapes.py  the shapes of training batches: padded sequences, or rows of sequences laid end to end
finetune.py    the main function: from weights, a task and a config to the best model, its scores and its predictions
inputs.py      weights, task and sets, checked against each other; the loss and the batches made from them
own_labels.py  the config of a fine-tuning on a user's own file
results.py     the summary of all trainings, the best model and its predictions
task_data.py   the sets of a task as batches and scores
teacher.py     a frozen fine-tuned model that the training learns from
training.py    one training: one learning rate and one seed
"""
