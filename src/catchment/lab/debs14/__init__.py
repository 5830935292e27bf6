"""The experiments of the DEBS'14 paper: what runs there are, and what each placement sends in them."""
