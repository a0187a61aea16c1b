"""A verified batch: a study whose outputs are checked. The same command again makes only what is missing.

$ mainstay batch run batch_study.py --param beta=0.2,0.4 --seeds 5 --workers 1
"""

import random

from mainstay import App, Outputs

app = App("sqlite:///study.db")


@app.batch(outputs={"peak": "peak.json"})
def simulate(params: dict, seed: int, out: Outputs) -> None:
    rng = random.Random(seed)
    susceptible, infected, peak = 990.0, 10.0, 10.0
    for _ in range(100):
        new = params["beta"] * susceptible * infected / 1000 * rng.uniform(0.9, 1.1)
        susceptible, infected = susceptible - new, infected + new - 0.1 * infected
        peak = max(peak, infected)
    out["peak"].write_text(f"{peak:.1f}")
