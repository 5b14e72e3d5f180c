"""SLBO: stages of real steps, after each of which model and policy improve in turns on the model alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from iadd_tr import adam, evaluate, normaliser, replay
from iadd_tr.agent import gaussian_policy, ppo, trpo
from iadd_tr.agent.gaussian_policy import Policy
from iadd_tr.agent.ppo import Trajectory
from iadd_tr.algorithm import collect
from iadd_tr.dynamics import difference
from iadd_tr.dynamics.difference import Model
from iadd_tr.experiment import Batch
from iadd_tr.nets import MLP, orthogonal
from iadd_tr.normaliser import Moments
from iadd_tr.replay import Replay
from iadd_tr.stage import Problem, Stage
from iadd_tr.tasks.envs import Reflex
from iadd_tr.types import PRNGKey, Run, Step, Transition


class Acting(eqx.Module):
    """The policy and the scale of what it sees."""

    policy: Policy
    scale: Moments


class State(eqx.Module):
    policy: Policy
    critic: MLP
    moments: optax.OptState
    model: Model
    real: Replay
    starts: Float[Array, "P O"]
    drift: Float[Array, " A"]  # Ornstein-Uhlenbeck noise on the actions


class Choice(eqx.Module):
    action: Float[Array, " A"]
    drift: Float[Array, " A"]


class Info(eqx.Module):
    """Means over a stage's rounds."""

    model_loss: Float[Array, ""]
    virtual_return: Float[Array, ""]  # per virtual step, times a thousand
    divergence: Float[Array, ""]
    accepted: Float[Array, ""]


def epoch(batch: Batch, state: State, number: int) -> State:
    """One epoch: collect with noise; at the end of a stage improve model and policy in turns."""
    length = batch.problem.settings.slbo.stage_steps
    for step in batch.steps(number):
        choice = batch(ACT, step, acting(state), state.drift, batch.observations)
        state = batch(STORE, state, choice, batch.execute(choice)())
        if (step + 1) % length == 0:
            starts = batch.host.starts(batch.problem.settings.slbo.starts, step)
            state = batch(IMPROVE, step, state, starts)
    return state


def begin(batch: Batch) -> State:
    """Nothing to warm up: the first stage collects with the fresh policy."""
    return batch(INIT)


def go_on(batch: Batch, state: State) -> State:
    """Room for the epochs asked for now."""
    return batch(GROW, state)


def acting(state: State) -> Acting:
    return Acting(state.policy, state.model.state)


def reflexes(state: State) -> list[Reflex]:
    """The deterministic policies of evaluation: the mean, clipped."""
    nets = state.policy.actor
    return evaluate.reflexes(nets, nets.layers[-1].bias.shape[-1], "clip", state.model.state)


def init(problem: Problem, run: Run) -> tuple[State, None]:
    """Fresh networks and an empty buffer."""
    task, settings = problem.task, problem.settings.slbo
    actor_key, critic_key, model_key = jax.random.split(run.at(0, 0), 3)
    actor = orthogonal(actor_key, [task.observations, *[settings.policy_hidden] * 2, task.actions], jnp.tanh, 0.01)
    critic = orthogonal(critic_key, [task.observations, *[settings.value_hidden] * 2, 1], jnp.tanh, 1.0)
    state = State(
        Policy(actor, jnp.zeros(task.actions)),
        critic,
        adam.init(critic),
        difference.init(model_key, task.observations, task.actions, settings),
        replay.init(problem.settings.loop.epochs * problem.settings.loop.epoch_length, task.observations, task.actions),
        jnp.zeros((settings.starts, task.observations)),
        jnp.zeros(task.actions),
    )
    return state, None


def act(
    problem: Problem,
    step: Int[Array, ""],
    run: Run,
    acting: Acting,
    drift: Float[Array, " A"],
    observation: Float[Array, " O"],
) -> tuple[Choice, None]:
    """The policy's draw plus noise that remembers itself."""
    settings = problem.settings.slbo
    action_key, drift_key = jax.random.split(run.at(2, step))
    seen = normaliser.standardise(acting.scale, observation)
    drift = (1.0 - settings.noise_return) * drift + settings.noise * jax.random.normal(drift_key, drift.shape)
    action = gaussian_policy.sample(action_key, acting.policy, seen) + drift
    return Choice(jnp.clip(action, -1.0, 1.0), drift), None


def store(problem: Problem, run: Run, state: State, choice: Choice, step: Step) -> tuple[State, None]:
    """Append the row; the noise starts again with the episode."""
    del problem, run
    row = Transition(step.observation, choice.action, jnp.zeros(()), step.reward, step.next_observation, step.discount)
    real = replay.extend(state.real, jax.tree.map(lambda x: x[None], row), jnp.ones(1, bool))
    drift = jnp.where(step.last, 0.0, choice.drift)
    return eqx.tree_at(lambda s: (s.real, s.drift), state, (real, drift)), None


def grow(problem: Problem, run: Run, state: State) -> tuple[State, None]:
    """Let the buffer use all its room."""
    del problem, run
    return eqx.tree_at(lambda s: s.real, state, replay.grow(state.real)), None


def improve(
    problem: Problem, step: Int[Array, ""], run: Run, state: State, starts: Float[Array, "P O"]
) -> tuple[State, Info]:
    """Rounds of model updates and policy updates."""
    settings = problem.settings.slbo
    state = eqx.tree_at(lambda s: (s.model, s.starts), state, (difference.rescale(state.model, state.real), starts))

    def one_round(state: State, key: PRNGKey) -> tuple[State, Info]:
        model_key, policy_key = jax.random.split(key)
        model, loss = difference.fit(model_key, state.model, state.real, settings)
        state = eqx.tree_at(lambda s: s.model, state, model)
        keys = jax.random.split(policy_key, settings.policy_updates)
        state, (earned, info) = jax.lax.scan(lambda s, k: improve_policy(k, s, problem), state, keys)
        return state, Info(loss, 1e3 * jnp.mean(earned), jnp.mean(info.divergence), jnp.mean(info.accepted))

    state, info = jax.lax.scan(one_round, state, jax.random.split(run.at(5, step), settings.rounds))
    return state, jax.tree.map(jnp.mean, info)


def improve_policy(key: PRNGKey, state: State, problem: Problem) -> tuple[State, tuple[Float[Array, ""], trpo.Info]]:
    """One TRPO step on virtual trajectories, then the value function's own passes."""
    settings, gamma = problem.settings.slbo, problem.settings.agent.gamma
    rollout_key, value_key = jax.random.split(key)
    trajectory = imagine(rollout_key, state, problem)
    next_value = state.critic(trajectory.next_observation)[..., 0]
    advantage = ppo.advantages(trajectory, next_value, gamma, settings.slbo_gae)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (trajectory, advantage, advantage + trajectory.value))
    flat, advantage, goal = rows
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy, info = trpo.update(
        state.policy, flat.observation, flat.action, flat.log_density, advantage, settings.bound,
        settings.conjugate_steps, settings.damping, settings.slbo_entropy,
    )  # fmt: skip
    critic, moments = fit_values(value_key, state.critic, state.moments, flat.observation, goal, problem)
    state = eqx.tree_at(lambda s: (s.policy, s.critic, s.moments), state, (policy, critic, moments))
    return state, (jnp.mean(trajectory.reward), info)


def imagine(key: PRNGKey, state: State, problem: Problem) -> Trajectory:
    """Virtual steps from initial states; an episode that ended starts again."""
    settings, count = problem.settings.slbo, problem.settings.slbo.virtual_environments
    start_key, step_key = jax.random.split(key)
    length = settings.virtual_steps // count
    first = state.starts[jax.random.randint(start_key, (count,), 0, state.starts.shape[0])]

    def step(observation: Float[Array, "N O"], key: PRNGKey) -> tuple[Float[Array, "N O"], Trajectory]:
        action_key, end_key, start_key = jax.random.split(key, 3)
        seen = normaliser.standardise(state.model.state, observation)
        action = gaussian_policy.sample(action_key, state.policy, seen)
        density = gaussian_policy.log_density(state.policy, seen, action)
        answer = difference.guess(state.model.net, state.model, observation, action)
        reached = difference.move(state.model, observation, answer)
        ending = problem.task.ending
        ended = difference.ends(end_key, answer) if ending is None else ending(reached)
        fresh = state.starts[jax.random.randint(start_key, (count,), 0, state.starts.shape[0])]
        row = Trajectory(
            seen, action, density, state.critic(seen)[..., 0], difference.reward_of(state.model, answer),
            normaliser.standardise(state.model.state, reached), jnp.where(ended, 0.0, 1.0), ended,
        )  # fmt: skip
        return jnp.where(ended[:, None], fresh, reached), row

    return jax.lax.scan(step, first, jax.random.split(step_key, length))[1]


def fit_values(
    key: PRNGKey,
    critic: MLP,
    moments: optax.OptState,
    observation: Float[Array, "B O"],
    goal: Float[Array, " B"],
    problem: Problem,
) -> tuple[MLP, optax.OptState]:
    """Passes of Adam over the virtual rows."""
    settings = problem.settings.slbo
    batches = goal.size // settings.value_batch

    def loss(critic: MLP, index: Int[Array, " B"]) -> Float[Array, ""]:
        return jnp.mean((critic(observation[index])[..., 0] - goal[index]) ** 2)

    def step(carry: tuple[MLP, optax.OptState], index: Int[Array, " B"]):
        return adam.descend(*carry, jax.grad(loss)(carry[0], index), jnp.array(settings.slbo_rate)), None

    orders = jax.vmap(lambda k: jax.random.permutation(k, goal.size))(jax.random.split(key, settings.value_passes))
    index = orders[:, : batches * settings.value_batch].reshape(-1, settings.value_batch)
    return jax.lax.scan(step, (critic, moments), index)[0]


INIT = Stage("init", init)
ACT = Stage("act", act, shared=1)
STORE = Stage("act", store, donate=(0,), wait=False)
GROW = Stage("init", grow, donate=(0,))
IMPROVE = Stage("update", improve, shared=1, donate=(0,))
look_ahead = collect.look_ahead
