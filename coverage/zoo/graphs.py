# SPDX-License-Identifier: Apache-2.0
"""Graph networks in plain torch: messages gathered along edges, and scattered onto nodes. Node classification.

A graph has 40 nodes of 16 features and 160 directed edges, with a self-loop at each node where the model wants one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem

NODES, EDGES, FEATURES, WIDTH, CLASSES = 40, 160, 16, 32, 5


def _graph(self_loops: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Features (NODES, FEATURES), edges (2, n) int64 as source and target, and a class for each node."""
    edges = torch.randint(NODES, (2, EDGES))
    if self_loops:
        edges = torch.cat((edges, torch.arange(NODES).expand(2, -1)), dim=1)
    return torch.randn(NODES, FEATURES), edges, torch.randint(CLASSES, (NODES,))


class NodeClassifier(nn.Module):
    """Two layers of messages, ReLU and dropout between them. forward(x, edges, labels) -> the 0-d cross entropy."""

    def __init__(self, first: nn.Module, second: nn.Module):
        super().__init__()
        self.first, self.second = first, second
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, edges: Tensor, labels: Tensor) -> Tensor:
        hidden = self.drop(torch.relu(self.first(x, edges)))
        return F.cross_entropy(self.second(hidden, edges), labels)


def _sum_at(messages: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """(edges, ...) messages summed at their target nodes: (nodes, ...)."""
    return messages.new_zeros(nodes, *messages.shape[1:]).index_add(0, targets, messages)


class GraphConvolution(nn.Module):
    """GCN layer: D^-1/2 A D^-1/2 X W (Kipf & Welling 2017). forward(x, edges): (n, inner) -> (n, outer)."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = _sum_at(torch.ones_like(target, dtype=x.dtype), target, x.shape[0])
        scale = degree.rsqrt()
        messages = self.linear(x)[source] * (scale[source] * scale[target])[:, None]
        return _sum_at(messages, target, x.shape[0])


def gcn() -> Problem:
    """Graph convolution: degrees counted, messages added by index."""
    model = NodeClassifier(GraphConvolution(FEATURES, WIDTH), GraphConvolution(WIDTH, CLASSES))
    return Problem(model, _graph(self_loops=True))


class GraphAttention(nn.Module):
    """GAT layer: a softmax over a node's incoming edges (Velickovic et al. 2018). (n, inner) -> (n, heads * outer)."""

    def __init__(self, inner: int, outer: int, heads: int):
        super().__init__()
        self.heads = heads
        self.linear = nn.Linear(inner, heads * outer, bias=False)
        self.source = nn.Parameter(torch.randn(heads, outer) * 0.3)
        self.target = nn.Parameter(torch.randn(heads, outer) * 0.3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        hidden = self.linear(x).unflatten(-1, (self.heads, -1))
        scores = (hidden * self.source).sum(-1)[source] + (hidden * self.target).sum(-1)[target]
        scores = F.leaky_relu(scores, 0.2)
        index = target[:, None].expand_as(scores)
        highest = scores.new_full((x.shape[0], self.heads), -torch.inf)
        highest = highest.scatter_reduce(0, index, scores.detach(), "amax")
        weights = (scores - highest[target]).exp()
        weights = weights / _sum_at(weights, target, x.shape[0])[target]
        return _sum_at(hidden[source] * weights[..., None], target, x.shape[0]).flatten(1)


def gat() -> Problem:
    """Graph attention with 4 heads: a maximum and a sum scattered over the edges."""
    model = NodeClassifier(GraphAttention(FEATURES, 8, heads=4), GraphAttention(32, CLASSES, heads=1))
    return Problem(model, _graph(self_loops=True))


class GraphIsomorphism(nn.Module):
    """GIN layer: an MLP of (1 + eps) x plus the sum of the neighbours (Xu et al. 2019). (n, inner) -> (n, outer)."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(nn.Linear(inner, outer), nn.BatchNorm1d(outer), nn.ReLU(), nn.Linear(outer, outer))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        index = target[:, None].expand(-1, x.shape[1])
        around = torch.zeros_like(x).scatter_add(0, index, x[source])
        hidden: Tensor = self.mlp((1 + self.eps) * x + around)
        return hidden


class GraphClassifier(nn.Module):
    """GIN over a batch of graphs, nodes summed up for each. forward(x, edges, graph, labels) -> the 0-d loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList((GraphIsomorphism(FEATURES, WIDTH), GraphIsomorphism(WIDTH, WIDTH)))
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor, labels: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edges)
        pooled = _sum_at(x, graph, labels.shape[0])
        return F.cross_entropy(self.head(self.drop(pooled)), labels)


def gin() -> Problem:
    """Graph isomorphism network: five graphs of eight nodes, one class each."""
    x, _, _ = _graph()
    graph = torch.arange(NODES) // 8
    source = torch.randint(NODES, (EDGES,))
    target = graph[source] * 8 + torch.randint(8, (EDGES,))
    return Problem(GraphClassifier(), (x, torch.stack((source, target)), graph, torch.randint(CLASSES, (5,))))


class GraphSage(nn.Module):
    """GraphSAGE layer: own features and the neighbours' mean (Hamilton et al. 2017). (n, inner) -> (n, outer)."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.own, self.around = nn.Linear(inner, outer), nn.Linear(inner, outer, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        index = target[:, None].expand(-1, x.shape[1])
        mean = torch.zeros_like(x).scatter_reduce(0, index, x[source], "mean", include_self=False)
        return F.normalize(self.own(x) + self.around(mean), dim=-1)


def graphsage() -> Problem:
    """GraphSAGE: a mean scattered over the edges, nodes without neighbours among them."""
    return Problem(NodeClassifier(GraphSage(FEATURES, WIDTH), GraphSage(WIDTH, CLASSES)), _graph())


class EdgeConvolution(nn.Module):
    """EdgeCNN layer: the maximum over neighbours of an MLP of (x_i, x_j - x_i) (Wang et al. 2019)."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * inner, outer), nn.ReLU(), nn.Linear(outer, outer))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """(n, inner), (2, edges) with at least one edge into each node -> (n, outer)."""
        source, target = edges
        messages = self.mlp(torch.cat((x[target], x[source] - x[target]), dim=-1))
        index = target[:, None].expand_as(messages)
        start = messages.new_zeros(x.shape[0], messages.shape[1])
        return start.scatter_reduce(0, index, messages, "amax", include_self=False)


def edgecnn() -> Problem:
    """Edge convolution: a maximum scattered over the edges, with its gradient."""
    model = NodeClassifier(EdgeConvolution(FEATURES, WIDTH), EdgeConvolution(WIDTH, CLASSES))
    return Problem(model, _graph(self_loops=True))
