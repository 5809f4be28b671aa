"""Programs that need one checker each: the self-test shows that every checker can fail."""
