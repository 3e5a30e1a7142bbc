"""The main functions of `bert-jax finetune`, `pairs` and `mine`, and the steps that they call.

batch_shapes.py  the shapes of training batches: padded sequences, or rows of sequences laid end to end
dev_retrieval.py  retrieval scores, computed at each evaluation while sentence vectors are trained
finetune.py    the main function: from weights, a task and a config to the best model, its scores and its predictions
inputs.py      weights, task and sets, checked against each other; the loss and the batches made from them
mine.py        the main function of `bert-jax mine`: pairs with hard negatives
negatives.py   the documents that rank high for a query, and the choice of negatives
own_labels.py  the config of a fine-tuning on a user's own file
pairs.py       the pairs of texts that train sentence vectors
results.py     the summary of all trainings, the best model and its predictions
task_data.py   the sets of a task, and scores of the dev sets
teacher.py     a frozen fine-tuned model that the training learns from
training.py    one training: one learning rate and one seed
training_sets.py  the training sets of a task: their files, and batches by step
unlabeled.py   files of pairs of texts from a corpus without labels, for tasks of the kind `similarity`
"""
