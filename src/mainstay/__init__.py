"""Mainstay: a distributed job system that can prove what happened to every job."""
