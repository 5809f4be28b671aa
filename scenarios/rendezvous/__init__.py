"""Rendezvous stores: the key-value stores through which ranks find each other."""
