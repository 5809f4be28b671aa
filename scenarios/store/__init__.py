"""The KV block store: its own scenarios, black-box ones for any store, troubleshooting stories."""
