"""Who is let in: tokens, sign-in, limits, headers. Start at `guard`."""
