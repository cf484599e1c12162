"""Runs whose models are in processes of their own, on several GPUs and machines.

Ray places and watches the processes. This is the only package that imports Ray or vLLM.

actors.py      Ray: start it, place processes, call them, turn its errors into ours
home.py        inside a process: one base model in training, with everything that lives on it
remote.py      its learner, sampler, scorer and publisher, as the driver sees them
models.py      all models of a run: open them, save and load their weights
"""
