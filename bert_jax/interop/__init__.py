"""Reading and writing of models in the formats of other libraries.

families/            the names that Hugging Face gives to our fields and tensors; a new family is a row of FAMILIES
huggingface/         Hugging Face model directories: load and export
tensors.py           conversion of our parameters to named tensors, and back
token_modules.py  read and write the files of late interaction: projection and token masks
sentence_modules.py  pooling, length and prompt of a sentence-transformers directory: read and write
google_tf.py         TensorFlow checkpoints of Google's BERT: load
stablehlo.py         export as a StableHLO program, which JAX runs without bert_jax
onnx_file.py         export as an ONNX file, in float32 or int8, or as an OpenVINO model
onnx_programs.py     torch code of exports: sentence vectors, and PROGRAMS, encoders that torch cannot export
"""
