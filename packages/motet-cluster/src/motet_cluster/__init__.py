"""Runs whose models are in processes of their own, on several GPUs and machines.

Ray places and watches the processes. No other package imports Ray or vLLM. This module imports
nothing: vLLM loads the package in each of its processes.

plugin.py            what Motet calls
planning.py          `motet plan`: which GPUs a run needs, on paper (command.py prints it)
models.py            all models of a run: open them, save and load their weights
actors.py            Ray: start it, place processes, call them, turn its errors into ours
home.py              inside a process: one base model in training, with everything that lives on it
ranked.py            a home of several processes, with shards or copies of its weights
shards.py            inside a process: its shards of weights, and the sums over the processes
remote.py            learner, sampler, scorer and publisher of homes, as the driver sees them
vllm_checks.py       what vLLM cannot compute is refused
vllm_sampler.py      sampling by vLLM engines
served.py            engines for a team that answers, without homes
engine_publisher.py  new weights for the engines
verification.py      whether engines and homes compute the same log-probabilities
engine_pool.py       engines that are replaced when they die or hang
vllm_engine.py       inside a process: one vLLM engine
files_transfer.py    inside vLLM: new weights from files
"""
