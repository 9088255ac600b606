# SPDX-License-Identifier: Apache-2.0
"""Losses of reinforcement learning on a batch of experience, in plain torch."""

from __future__ import annotations

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem

BATCH, OBSERVATION, ACTIONS, WIDTH = 16, 8, 4, 64
DISCOUNT = 0.99

Network = TypeVar("Network", bound=nn.Module)


def _frozen(network: Network) -> Network:
    """A copy that is not trained: the target network."""
    frozen = copy.deepcopy(network)
    frozen.requires_grad_(False)
    return frozen


def _mlp(inner: int, outer: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inner, WIDTH), activation(), nn.Linear(WIDTH, WIDTH), activation(), nn.Linear(WIDTH, outer)
    )


class DQN(nn.Module):
    """Deep Q-learning on images (Mnih et al. 2015), double and dueling (Wang et al. 2016).

    forward(now, action, reward, following, done): (b, 4, 32, 32), (b,) int64, (b,), (b, 4, 32, 32), (b,) of 0 and 1
    -> the 0-d smooth L1 loss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.online = Dueling()
        self.target = _frozen(self.online)

    def forward(self, now: Tensor, action: Tensor, reward: Tensor, following: Tensor, done: Tensor) -> Tensor:
        chosen = self.online(now).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.online(following).argmax(1, keepdim=True)
            value = reward + DISCOUNT * (1 - done) * self.target(following).gather(1, best).squeeze(1)
        return F.smooth_l1_loss(chosen, value)


class Dueling(nn.Module):
    """Convolutions, then a value and an advantage stream. (b, 4, 32, 32) -> (b, ACTIONS)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(4, 8, 8, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(16 * 9, WIDTH), nn.ReLU()),
        )
        self.value, self.advantage = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, ACTIONS)

    def forward(self, pixels: Tensor) -> Tensor:
        hidden = self.features(pixels)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(1, keepdim=True)


def dqn() -> Problem:
    """Dueling double DQN: a frozen target network, values gathered at the actions taken."""
    now, following = torch.rand(BATCH, 4, 32, 32), torch.rand(BATCH, 4, 32, 32)
    action, done = torch.randint(ACTIONS, (BATCH,)), torch.randint(2, (BATCH,)).float()
    return Problem(DQN(), (now, action, torch.randn(BATCH), following, done))


class ActorCritic(nn.Module):
    """PPO's clipped objective (Schulman et al. 2017) with value loss and entropy, on advantages made in the step.

    forward(observations, actions, old, rewards, done): time first, (t + 1, b, OBSERVATION), (t, b) int64, log
    probabilities (t, b) of the actions when they were taken, (t, b), (t, b) of 0 and 1 -> the 0-d loss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = _mlp(OBSERVATION, ACTIONS, nn.Tanh), _mlp(OBSERVATION, 1, nn.Tanh)

    def forward(self, observations: Tensor, actions: Tensor, old: Tensor, rewards: Tensor, done: Tensor) -> Tensor:
        values = self.critic(observations).squeeze(-1)
        advantages = generalized_advantages(values.detach(), rewards, done)
        returns = advantages + values[:-1].detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_probabilities = self.actor(observations[:-1]).log_softmax(-1)
        ratio = (log_probabilities.gather(-1, actions[..., None]).squeeze(-1) - old).exp()
        policy = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        entropy = -(log_probabilities.exp() * log_probabilities).sum(-1).mean()
        return policy + 0.5 * F.mse_loss(values[:-1], returns) - 0.01 * entropy


def generalized_advantages(values: Tensor, rewards: Tensor, done: Tensor, decay: float = 0.95) -> Tensor:
    """Advantages (t, b) of values (t + 1, b) and rewards (t, b), from the last step back (Schulman et al. 2016)."""
    deltas = rewards + DISCOUNT * values[1:] * (1 - done) - values[:-1]
    running = torch.zeros_like(deltas[0])
    advantages = []
    for step in range(deltas.shape[0] - 1, -1, -1):
        running = deltas[step] + DISCOUNT * decay * (1 - done[step]) * running
        advantages.append(running)
    return torch.stack(advantages[::-1])


def actor_critic() -> Problem:
    """PPO on 8 steps of 4 environments."""
    shape = (8, 4)
    actions, done = torch.randint(ACTIONS, shape), (torch.rand(shape) < 0.1).float()
    old = math.log(1 / ACTIONS) + 0.1 * torch.randn(shape)
    return Problem(ActorCritic(), (torch.randn(9, 4, OBSERVATION), actions, old, torch.randn(shape), done))


class SoftActorCritic(nn.Module):
    """Soft actor-critic (Haarnoja et al. 2018): a squashed Gaussian policy, two critics, a learned temperature.

    forward(now, action, reward, following, done): (b, OBSERVATION), (b, ACTIONS) in (-1, 1), (b,), (b, OBSERVATION),
    (b,) of 0 and 1 -> the 0-d sum of the three losses. The policy's loss does not train the critics.
    """

    def __init__(self) -> None:
        super().__init__()
        self.actor = _mlp(OBSERVATION, 2 * ACTIONS)
        self.critics = nn.ModuleList(_mlp(OBSERVATION + ACTIONS, 1) for _ in range(2))
        self.targets = _frozen(self.critics)
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def _act(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """An action (b, ACTIONS) and its log density (b,)."""
        mean, log_scale = self.actor(observation).chunk(2, dim=-1)
        log_scale = log_scale.clamp(-5, 2)
        noise = torch.randn_like(mean)
        raw = mean + log_scale.exp() * noise
        density = -0.5 * noise.square() - log_scale - 0.5 * math.log(2 * math.pi)
        squash = 2 * (math.log(2) - raw - F.softplus(-2 * raw))  # log of the derivative of tanh
        return raw.tanh(), (density - squash).sum(-1)

    def forward(self, now: Tensor, action: Tensor, reward: Tensor, following: Tensor, done: Tensor) -> Tensor:
        temperature = self.log_temperature.exp().detach()
        with torch.no_grad():
            next_action, density = self._act(following)
            pair = torch.cat((following, next_action), dim=-1)
            first, second = (target(pair).squeeze(-1) for target in self.targets)
            value = reward + DISCOUNT * (1 - done) * (torch.minimum(first, second) - temperature * density)
        taken = torch.cat((now, action), dim=-1)
        critic_loss = sum(F.mse_loss(critic(taken).squeeze(-1), value) for critic in self.critics)
        new_action, density = self._act(now)
        pair = torch.cat((now, new_action), dim=-1)
        judged = [
            torch.func.functional_call(critic, {k: p.detach() for k, p in critic.named_parameters()}, (pair,))
            for critic in self.critics
        ]
        policy_loss = (temperature * density - torch.minimum(*judged).squeeze(-1)).mean()
        temperature_loss = -(self.log_temperature * (density.detach() - ACTIONS)).mean()
        return critic_loss + policy_loss + temperature_loss


def sac() -> Problem:
    """Soft actor-critic: actions drawn in the forward pass, for the policy and for the target."""
    now, following = torch.randn(BATCH, OBSERVATION), torch.randn(BATCH, OBSERVATION)
    action, done = torch.rand(BATCH, ACTIONS) * 2 - 1, torch.randint(2, (BATCH,)).float()
    return Problem(SoftActorCritic(), (now, action, torch.randn(BATCH), following, done))
