# one rule with a wildcard, files as targets; each unit is a command of its own
import sys

rule all:
    input:
        expand(config["folder"] + "/{seed}.json", seed=range(int(config["units"]))),

rule unit:
    output:
        config["folder"] + "/{seed}.json",
    shell:
        "{sys.executable} -m bench.peers.studies.make_one {output}"
