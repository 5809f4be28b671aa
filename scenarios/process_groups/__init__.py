"""Real process groups of torch.distributed under faults and mistakes."""
