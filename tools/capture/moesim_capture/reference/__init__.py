"""A small MoE training job of our own: the package records it when no training script is given."""
