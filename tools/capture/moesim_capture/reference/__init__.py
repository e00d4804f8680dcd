"""A small MoE training job of our own: what the package records when nobody brings a training script."""
