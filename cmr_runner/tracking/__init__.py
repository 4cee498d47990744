"""Trackers of experiments (TensorBoard, MLflow, W&B) as listeners of a run; a library is imported when it is used."""
