"""Programs written against torch.distributed, run in simulation without being changed."""
