"""The spine of `bert-jax finetune` (finetune.py), and what only it needs.

finetune.py   Fine-tuning put together
results.py    the summary of all trainings, the best model and its predictions
setup.py      weights, task and data, checked against each other
task_data.py  the sets of a task as batches and scores
teacher.py    a model fine-tuned before, which the training learns from
train.py      one training: one learning rate and one seed
"""
