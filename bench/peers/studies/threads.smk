# the same, called in the process of the workflow: for --force-use-threads
from pathlib import Path

from bench.peers.studies import unit

rule all:
    input:
        expand(config["folder"] + "/{seed}.json", seed=range(int(config["units"]))),

rule unit:
    output:
        config["folder"] + "/{seed}.json",
    run:
        unit.make(Path(output[0]).parent, int(wildcards.seed))
