"""What a user reads: a finding's report and timeline, a hunt's summary, the folder left behind."""
