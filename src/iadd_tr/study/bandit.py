"""A continuous bandit whose policy gradient is known by quadrature: the truth beside Theorems 3 and 4."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iadd_tr.agent import policy, targeted
from iadd_tr.gaussian import uniform_log_density
from iadd_tr.nets import MLP, Linear
from iadd_tr.types import PRNGKey, Transition

COMPONENTS = ("slope", "intercept", "log-deviation")
"""The policy's parameters: the mean before tanh is slope * s + intercept."""

NODES = 32
"""Points of the Gauss-Legendre rule on [-1, 1], which integrates states and actions."""

RIDGE = 0.1
"""Of least squares, in rows: it fades as rows come in."""


@dataclass(frozen=True)
class Scale:
    """How much is simulated."""

    samples: tuple[int, ...]
    """Rows of a replication, one simulation for each."""
    replications: int
    seed: int = 1


@dataclass(frozen=True)
class Bandit:
    """States uniform on [-1, 1]; actions partly uniform, as in a warm-up, and else from a policy that sees the state.

    The uniform part bounds the density from below; under a squashed Gaussian alone E[1 / e^2], on which Theorem 4
    rests, is infinite.
    """

    behaviour: tuple[float, ...] = (0.8, 0.0, -0.5)
    target: tuple[float, ...] = (-0.5, 0.2, -0.7)
    uniform_share: float = 0.4
    noise: float = 0.5
    """Deviation of the outcome around its mean."""

    @property
    def theta(self) -> Float[Array, " 3"]:
        """The parameters of the policy whose gradient is wanted."""
        return jnp.array(self.target)


BANDIT = Bandit()


class Critic(eqx.Module):
    """Products of Legendre polynomials of the state and of the action."""

    coefficients: Float[Array, "P F"]

    def __call__(self, state: Float[Array, "N 1"], action: Float[Array, "N 1"]) -> Float[Array, " N"]:
        """Q at given rows."""
        return jnp.einsum("np,pf,nf->n", *self._around(state, action))

    def table(self, state: Float[Array, "N 1"], action: Float[Array, "K 1"]) -> Float[Array, "N K"]:
        """Q of every state with every action."""
        return jnp.einsum("np,pf,kf->nk", *self._around(state, action))

    def _around(self, state: Array, action: Array) -> tuple[Array, Array, Array]:
        states, actions = (size - 1 for size in self.coefficients.shape)
        return targeted.features(state, states), self.coefficients, targeted.features(action, actions)


def fit(rows: Transition, weight: Float[Array, " N"], degrees: tuple[int, int]) -> Critic:
    """Weighted least squares: the correction's normal equations with density one."""
    states, actions = (targeted.features(x, d) for x, d in zip((rows.observation, rows.action), degrees, strict=True))
    products = (states[:, :, None] * actions[:, None, :]).reshape(len(weight), -1)
    one = jnp.zeros_like(weight)
    sums = targeted.normal_equations(products, rows.reward, one, jnp.zeros(()), weight)
    return Critic(targeted.solve(*sums, RIDGE).reshape(states.shape[1], actions.shape[1]))


def network(theta: Float[Array, " 3"]) -> MLP:
    """The agent's policy network without hidden layers: a linear mean and a constant deviation."""
    weight = jnp.stack([theta[0], jnp.zeros(())])[None]
    return MLP((Linear(weight, theta[1:]),), jax.nn.relu)


def log_density(
    theta: Float[Array, " 3"], state: Float[Array, "*B 1"], action: Float[Array, "*B 1"]
) -> Float[Array, "*B"]:
    """log pi_theta(a | s)."""
    return policy.log_density(network(theta), state, action)


def score(theta: Float[Array, " 3"], state: Float[Array, "*B 1"], action: Float[Array, "*B 1"]) -> Float[Array, "*B 3"]:
    """g_theta(s, a), the gradient of the log-density, Eq. 13."""
    return jax.jacfwd(log_density)(theta, state, action)


def density_gradient(
    theta: Float[Array, " 3"], state: Float[Array, "*B 1"], action: Float[Array, "*B 1"]
) -> Float[Array, "*B 3"]:
    """pi_theta(a | s) g_theta(s, a)."""
    return jnp.exp(log_density(theta, state, action))[..., None] * score(theta, state, action)


def behaviour_log_density(
    bandit: Bandit, state: Float[Array, "*B 1"], action: Float[Array, "*B 1"]
) -> Float[Array, "*B"]:
    """log pi_beta(a | s) of the mixture."""
    uniform = np.log(bandit.uniform_share) + uniform_log_density(1)
    seeing = np.log1p(-bandit.uniform_share) + log_density(jnp.array(bandit.behaviour), state, action)
    return jnp.logaddexp(uniform, seeing)


def mean_outcome(state: Float[Array, "*B 1"], action: Float[Array, "*B 1"]) -> Float[Array, "*B"]:
    """m_0(s, a), which is Q where an episode has one step; it does not separate into states and actions."""
    return (jnp.sin(2.0 * action + state) + state * (1.0 - 0.5 * action))[..., 0]


def sample(key: PRNGKey, bandit: Bandit, count: int) -> Transition:
    """Rows of a replay whose episodes end after one step."""
    state_key, action_key, uniform_key, choice_key, noise_key = jax.random.split(key, 5)
    state = jax.random.uniform(state_key, (count, 1), minval=-1.0, maxval=1.0)
    chosen, _ = policy.sample(action_key, network(jnp.array(bandit.behaviour)), state)
    uniform = jax.random.uniform(uniform_key, (count, 1), minval=-1.0, maxval=1.0)
    action = jnp.where(jax.random.bernoulli(choice_key, bandit.uniform_share, (count, 1)), uniform, chosen)
    reward = mean_outcome(state, action) + bandit.noise * jax.random.normal(noise_key, (count,))
    return Transition(state, action, behaviour_log_density(bandit, state, action), reward, state, jnp.zeros(count))


def nodes() -> tuple[Float[Array, "K 1"], Float[Array, " K"]]:
    """The Gauss-Legendre rule."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    return jnp.array(points, jnp.float32)[:, None], jnp.array(weights, jnp.float32)


def pairs(
    state: Float[Array, "N 1"], action: Float[Array, "K 1"]
) -> tuple[Float[Array, "N K 1"], Float[Array, "N K 1"]]:
    """Every state with every action."""
    shape = (len(state), len(action), 1)
    return jnp.broadcast_to(state[:, None], shape), jnp.broadcast_to(action[None], shape)


def policy_weight(theta: Float[Array, " 3"], state: Float[Array, "N 1"]) -> Float[Array, "N K 3"]:
    """pi_theta(a | s) g_theta(s, a) da at the nodes: its product with Q, summed, is E[Q g | s]."""
    action, weight = nodes()
    return weight[None, :, None] * density_gradient(theta, *pairs(state, action))


def expected(along: Float[Array, "N K 3"], value: Float[Array, "N K"]) -> Float[Array, "N 3"]:
    """E[Q(s, a) g(s, a)] over the policy's actions at each state, from the policy's weight and Q at the nodes."""
    return jnp.einsum("nkp,nk->np", along, value)


def gradient(theta: Float[Array, " 3"]) -> Float[Array, " 3"]:
    """psi, the policy gradient of Eq. 13."""
    state, weight = nodes()
    return 0.5 * weight @ expected(policy_weight(theta, state), mean_outcome(*pairs(state, state)))


def curve(action: Float[Array, "K 1"]) -> Float[Array, " K"]:
    """mu_0(a), the mean outcome of an action over all states, Eq. 46."""
    state, weight = nodes()
    return 0.5 * weight @ mean_outcome(*pairs(state, action))


def efficient_covariance(bandit: Bandit, theta: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """The covariance of the influence function, Eq. 16: the least that n Cov of an estimate can reach."""
    state, weight = nodes()
    where = pairs(state, state)
    inverse = jnp.exp(-behaviour_log_density(bandit, *where)) / weight[None]
    along = policy_weight(theta, state)
    noise = bandit.noise**2 * jnp.einsum("n,nk,nkp,nkq->pq", 0.5 * weight, inverse, along, along)
    centred = expected(along, mean_outcome(*where)) - gradient(theta)[None]
    return noise + jnp.einsum("n,np,nq->pq", 0.5 * weight, centred, centred)
