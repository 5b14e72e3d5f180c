"""The commands `iadd-tr study …`: run a study, write its tables and figures, show what came out."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from iadd_tr.shell.errors import require
from iadd_tr.shell.output import make_folder, progress, show, write_csv
from iadd_tr.study import designs
from iadd_tr.study.synthetic import Study


@dataclass(frozen=True)
class Synthetic:
    """Recover the post-intervention state of the oscillator (Q3, Appendix B)."""

    study: Annotated[Study, tyro.conf.arg(name="")] = field(default_factory=Study)
    out: Path = Path("runs/synthetic")
    """Where table.csv, summary.csv and figure.png go."""


def synthetic(options: Synthetic) -> None:
    """Train every form with every ratio and seed, and compare with the paper's table."""
    from iadd_tr.report import synthetic as report
    from iadd_tr.study import synthetic as study

    check(options.study)
    folder = make_folder(options.out)
    with progress("ensembles", options.study.epochs) as advance:
        table = list(study.run(options.study, advance))
    write_csv(folder / "table.csv", table)
    write_csv(folder / "summary.csv", report.summary(table))
    report.draw(table, folder / "figure.png")
    show("median over seeds", ("ratio", "form", "mse_mid", "Pearson", "mse_next"), report.lines(table))
    print(f"{folder / 'table.csv'}, summary.csv and figure.png are written.")


@dataclass(frozen=True)
class Theory:
    """Check Theorems 1 to 4 by simulation."""

    out: Path = Path("runs/theory")
    """Where a table and a figure for each theorem go."""
    quick: bool = False
    """Small samples: a minute instead of several."""


def theory(options: Theory) -> None:
    """Run each simulation, and say what it found."""
    from iadd_tr.report import identifiability as identified
    from iadd_tr.report import theory as targeted
    from iadd_tr.study import coverage, influence, latents, robustness

    folder = make_folder(options.out)
    simulations: list[tuple[str, Any, tuple[Any, Any], Any]] = [
        ("theorem_1", coverage.run, (coverage.FULL, coverage.QUICK), identified.coverage),
        ("theorem_2", latents.run, (latents.FULL, latents.QUICK), identified.latents),
        ("theorem_3", influence.run, (influence.FULL, influence.QUICK), targeted.influence),
        ("theorem_4", robustness.run, (robustness.FULL, robustness.QUICK), targeted.robustness),
    ]
    with progress("theorems", len(simulations)) as advance:
        for name, run, scales, draw in simulations:
            rows = run(scales[options.quick])
            write_csv(folder / f"{name}.csv", rows)
            draw(rows, folder / f"{name}.png")
            advance()
    print(f"{folder} holds theorem_1.csv to theorem_4.csv and a figure of each.")


@dataclass(frozen=True)
class Gradient:
    """Compare policy gradients of critics with and without TR with Monte-Carlo returns on Hopper (Q4)."""

    checkpoints: tuple[int, ...] | None = None
    """Epochs after which the SAC agent is frozen; 50,100,150,200,250,300 where not given."""
    seeds: tuple[int, ...] | None = None
    """Of the paired critics; 1,2,3,4,5 where not given."""
    out: Path = Path("runs/gradient")
    """Where the tables and figures go, and what is trained on the way: the command goes on with what is there."""
    quick: bool = False
    """A small agent, few checkpoints, short trajectories: two minutes."""


def gradient(options: Gradient) -> None:
    """Freeze the agent, follow its policy, train the critics, and say whether TR turned their gradients."""
    from iadd_tr.report import gradient as report
    from iadd_tr.shell import diagnostic
    from iadd_tr.study.gradient import FULL, QUICK

    given = {name: getattr(options, name) for name in ("checkpoints", "seeds") if getattr(options, name) is not None}
    study = replace(QUICK if options.quick else FULL, **given)
    diagnostic.check(study)
    folder = make_folder(options.out)
    table = diagnostic.run(study, folder)
    write_csv(folder / "table.csv", report.main(table))
    write_csv(folder / "variants.csv", table)
    write_csv(folder / "summary.csv", report.summary(table))
    write_csv(folder / "variants_summary.csv", report.overall(table))
    report.draw(table, folder / "figure.png")
    report.draw_variants(table, folder / "variants.png")
    columns = ("epochs", "TR", "cosine without", "with", "paired gain [95 %]", "by level alone", "|ε/e| / |Q|")
    show("cosine to the Monte-Carlo policy gradient, means over paired seeds", columns, report.lines(table))
    print(f"{folder} holds table.csv and figure.png, and of all variants variants.csv, variants.png and summaries.")


@dataclass(frozen=True)
class Counterfactual:
    """Compare dynamics models on actions that the policy would not have taken."""

    study: Annotated[designs.Study, tyro.conf.arg(name="")] = field(default_factory=designs.Study)
    out: Path = Path("runs/counterfactual")
    """Where agents and replays are kept, so that the same command goes on, and the tables and the figure go."""
    quick: bool = False
    """Few and small agents, replays and models: two minutes to see that all of it works."""


def counterfactual(options: Counterfactual) -> None:
    """Train agents, intervene in the states they visit, fit every design to their replay, and compare."""
    from iadd_tr.report import counterfactual as report
    from iadd_tr.shell import counterfactual as steps
    from iadd_tr.shell import keep

    study = designs.quick(options.study) if options.quick else options.study
    study = replace(study, forms=tuple(dict.fromkeys((*designs.BASES, *study.forms))))
    steps.check(study)
    folder = make_folder(options.out)
    keep.same_study(folder, study, "tasks", "forms")
    for task in study.tasks:
        steps.collect(study, task, folder / task, progress)
    with progress("designs", len(study.tasks) * len(study.forms) * len(study.sizes)) as tick:
        for task in study.tasks:
            steps.compare(study, task, folder / task, tick)
    table, bins = steps.gather(study, folder)
    write_csv(folder / "table.csv", table)
    write_csv(folder / "summary.csv", report.summary(table))
    write_csv(folder / "overall.csv", report.overall(table))
    write_csv(folder / "bins.csv", bins)
    report.draw(bins, "one-step error", folder / "figure.png")
    report.draw(report.relative(bins), "error ÷ the same seed's monolith", folder / "ratios.png")
    for metric in ("error", "open_loop_25", "nll", "coverage_90"):
        title = f"{metric}: median over seeds{' × ratios to both monoliths' * (metric in report.ERRORS)}"
        show(title, ("task", "steps", "design", *report.columns(table, metric)), report.lines(table, metric))
    print(f"{folder} holds table.csv, summary.csv, overall.csv, bins.csv, figure.png and ratios.png.")


@dataclass(frozen=True)
class Foresight:
    """Ask whether a trained agent's critics and model know how its own episodes end."""

    run: tyro.conf.Positional[Path]
    """A run folder of mbpo, iadd or one of them with TR."""
    episodes: int = 20
    """Deterministic ones of each run, from new starts."""
    out: Path | None = None
    """Where table.csv, summary.csv and figure.png go; RUN/foresight where not given."""


def foresight(options: Foresight) -> None:
    """Play the policies, look back from the ends, and compare with what was expected."""
    from iadd_tr.report import foresight as report
    from iadd_tr.shell import foresight as steps

    require([(options.episodes >= 1, "--episodes must be 1 or more")])
    summary, table = steps.run(options.run, options.episodes)
    folder = make_folder(options.out or options.run / "foresight")
    write_csv(folder / "summary.csv", summary)
    columns = ("run", "steps", "ended", "return", "discounted return", "value of the first step")
    show(f"{options.run}, means over {options.episodes} episodes", columns, report.summary_lines(summary))
    if not table:
        print(f"No episode came to an end, so there is nothing to foresee; {folder / 'summary.csv'} is written.")
        return
    write_csv(folder / "table.csv", table)
    report.draw(table, folder / "figure.png")
    columns = ("run", "steps before the end", "episodes", "value", "rewards to come", "foreseen")
    show("discounted; foreseen: imagined futures that end within twice as many steps", columns, report.lines(table))
    print(f"{folder} holds table.csv, summary.csv and figure.png.")


@dataclass(frozen=True)
class Hindsight:
    """Fit other designs along a run's own replay, as its loop did, and ask which foresees best what came next."""

    run: tyro.conf.Positional[Path]
    """A run folder of mbpo, iadd, one of them with TR, or sac."""
    forms: tuple[str, ...] = ("monolith-normal", "iadd")
    """Designs of equal size; all are compared with the first."""
    every: int = 1000
    """Rows between two fits."""
    cold: bool = False
    """Whether each fit starts from scratch instead of where the one before it ended."""
    out: Path | None = None
    """Where table.csv and figure.png go; RUN/hindsight where not given."""


def hindsight(options: Hindsight) -> None:
    """Go through the replay again with every design, and compare."""
    from iadd_tr.report import hindsight as report
    from iadd_tr.shell import hindsight as steps

    table = steps.run(options.run, options.forms, options.every, options.cold)
    folder = make_folder(options.out or options.run / "hindsight")
    write_csv(folder / "table.csv", table)
    report.draw(table, folder / "figure.png")
    for metric, title in report.METRICS.items():
        what = f"{title} on the rows that came next ÷ {options.forms[0]}'s, median over runs (95 %), by rows seen"
        show(what, ("design", *report.columns(table)), report.lines(table, metric))
    print(f"{folder} holds table.csv and figure.png.")


def check(study: Study) -> None:
    """Refuse what cannot be trained."""
    rules = [
        (bool(study.seeds), "--seeds must name one seed or more"),
        (all(0 <= seed < 2**31 for seed in study.seeds), "--seeds must lie between 0 and 2147483647"),
        (bool(study.ratios), "--ratios must name one ratio or more"),
        (all(0 <= ratio <= 1 for ratio in study.ratios), "--ratios must lie in [0, 1]"),
        (bool(study.forms), "--forms must name one form or more"),
        (min(study.rows, study.epochs, study.held_out) >= 1, "--rows, --epochs and --held-out must be 1 or more"),
        (min(study.members, study.width, study.batch) >= 1, "--members, --width and --batch must be 1 or more"),
        (len(study.depths) == 2 and min(study.depths) >= 1, "--depths must be two positive numbers"),
        (study.latent_width >= 0, "--latent-width must be 0 or more"),
        (study.noise >= 0, "--noise must be 0 or more"),
    ]
    require(rules)


STUDIES = {
    "synthetic": (Synthetic, synthetic),
    "theory": (Theory, theory),
    "gradient": (Gradient, gradient),
    "counterfactual": (Counterfactual, counterfactual),
    "foresight": (Foresight, foresight),
    "hindsight": (Hindsight, hindsight),
}
