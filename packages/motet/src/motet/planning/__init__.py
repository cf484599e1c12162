"""What a run needs, on paper: figures from sizes and data sheets, not measured.

gpus.py        memory, bandwidth and FLOP/s of GPUs
batches.py     what a step plays, and its largest batches
throughput.py  seconds of a step
"""
