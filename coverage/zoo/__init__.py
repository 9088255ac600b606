# SPDX-License-Identifier: Apache-2.0
"""The zoo: small training problems of the architectures people train, in train mode with dropout on.

The table below is all that is read to list or check names; a factory's file (and torch, transformers) is imported
when its problem is built. A factory takes no arguments and draws everything from the seeded generators: the same
seed gives the same problem.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from relaxgrad.bridge.errors import UserError

if TYPE_CHECKING:
    from ..harness.problem import Problem


class Group(StrEnum):
    """Families of the zoo. Each can be named in `select`."""

    TINY = "tiny"
    TEXT = "text"
    VISION = "vision"
    GENERATIVE = "generative"
    AUDIO = "audio"
    MULTIMODAL = "multimodal"
    RECURRENT = "recurrent"
    RECOMMENDATION = "recommendation"
    GRAPH = "graph"
    TABULAR = "tabular"
    REINFORCEMENT = "reinforcement"
    TORCHVISION = "torchvision"
    TIMM = "timm"
    PERF = "perf"


# Not installed with relaxgrad[zoo], because torchvision pins its torch; left out of "all".
OPTIONAL = (Group.TORCHVISION, Group.TIMM)

# Left out of "all" too: architectures that are there already, of sizes that are made to be timed.
TIMED = (Group.PERF,)


@dataclass(frozen=True)
class ZooEntry:
    """One named problem of the zoo."""

    name: str
    group: Group
    tags: tuple[str, ...]  # finer than the group: what kind of text or vision model, what is special in it
    factory: str  # "file:function" in this folder: function() -> Problem
    dropout: bool  # whether the architecture has a random part in training
    benchmark: str = ""  # "suite/model": the same architecture in PyTorch's benchmark lists, whatever its head and size

    def build(self, seed: int) -> Problem:
        """The problem: parameters, inputs and targets drawn from `seed`.

        Raises UserError for a model of an optional group whose package is not installed, ImportError for the others.
        """
        from ..harness.problem import seed_everything

        file, _, function = self.factory.partition(":")
        module = importlib.import_module(f".{file}", __name__)
        seed_everything(seed)
        try:
            problem: Problem = getattr(module, function)()
        except ImportError as error:
            if self.group not in OPTIONAL:
                raise
            raise UserError(
                f"zoo model {self.name} needs {self.group.value}, which is not there ({error}); "
                "install it: pip install relaxgrad[vision] torch==2.14.1"
            ) from error
        problem.module.train()
        return problem


def _family(group: Group, file: str, *rows: tuple[str, str, bool, str]) -> list[ZooEntry]:
    """Entries of one file. A row: name, tags, dropout, benchmark; the function is the name with underscores."""
    return [
        ZooEntry(name, group, tuple(tags.split()), f"{file}:{name.replace('-', '_')}", dropout, benchmark)
        for name, tags, dropout, benchmark in rows
    ]


ZOO: dict[str, ZooEntry] = {
    entry.name: entry
    for family in (
        _family(
            Group.TINY,
            "tiny",
            ("seed-example", "mlp", False, ""),
            ("mlp", "mlp", True, ""),
        ),
        _family(
            Group.TEXT,
            "text",
            ("transformer-encoder", "encoder", True, "torchbench/BERT_pytorch"),
        ),
        _family(
            Group.TEXT,
            "text_encoders",
            ("bert", "encoder", True, "huggingface/BertForMaskedLM"),
            ("distilbert", "encoder", True, "huggingface/DistilBertForMaskedLM"),
            ("roberta", "encoder", True, "huggingface/RobertaForCausalLM"),
            ("albert", "encoder", True, "huggingface/AlbertForMaskedLM"),
            ("electra", "encoder", True, "huggingface/ElectraForCausalLM"),
            ("deberta-v2", "encoder", True, "huggingface/DebertaV2ForMaskedLM"),
            ("mobilebert", "encoder mobile", True, "huggingface/MobileBertForMaskedLM"),
            ("convbert", "encoder", True, "huggingface/YituTechConvBert"),
            ("layoutlm", "encoder", True, "huggingface/LayoutLMForMaskedLM"),
            ("fnet", "encoder complex", True, "huggingface/GoogleFnet"),
            ("xlnet", "encoder", True, "huggingface/XLNetLMHeadModel"),
            ("funnel", "encoder", True, ""),
            ("longformer", "encoder long-context", True, "huggingface/AllenaiLongformerBase"),
            ("big-bird", "encoder long-context", True, "torchbench/hf_BigBird"),
        ),
        _family(
            Group.TEXT,
            "text_decoders",
            ("gpt2", "decoder", True, "huggingface/DistillGPT2"),
            ("gpt-neo", "decoder", True, "huggingface/GPTNeoForCausalLM"),
            ("gptj", "decoder", True, "huggingface/GPTJForCausalLM"),
            ("gpt-neox", "decoder", True, ""),
            ("opt", "decoder", True, "huggingface/OPTForCausalLM"),
            ("bloom", "decoder", True, ""),
            ("xglm", "decoder", True, "huggingface/XGLMForCausalLM"),
            ("llama", "decoder", True, "huggingface/meta-llama/Llama-3.2-1B"),
            ("mistral", "decoder", True, "huggingface/mistralai/Mistral-7B-Instruct-v0.3"),
            ("qwen2", "decoder", True, ""),
            ("qwen3", "decoder", True, "huggingface/Qwen/Qwen3-0.6B"),
            ("gemma2", "decoder", True, "huggingface/google/gemma-2-2b"),
            ("phi", "decoder", True, "torchbench/phi_1_5"),
            ("falcon", "decoder", True, ""),
            ("mixtral", "decoder mixture-of-experts", True, ""),
            ("qwen2-moe", "decoder mixture-of-experts", True, ""),
            ("gpt-oss", "decoder mixture-of-experts", True, "huggingface/openai/gpt-oss-20b"),
            ("mamba", "decoder state-space", False, ""),
            ("mamba2", "decoder state-space", False, ""),
            ("rwkv", "decoder state-space", False, ""),
        ),
        _family(
            Group.TEXT,
            "text_seq2seq",
            ("t5", "encoder-decoder", True, "huggingface/T5ForConditionalGeneration"),
            ("mt5", "encoder-decoder", True, "huggingface/MT5ForConditionalGeneration"),
            ("switch-transformers", "encoder-decoder mixture-of-experts", True, ""),
            ("bart", "encoder-decoder", True, "huggingface/BartForCausalLM"),
            ("pegasus", "encoder-decoder", True, "huggingface/PegasusForCausalLM"),
            ("marian", "encoder-decoder", True, ""),
            ("blenderbot", "encoder-decoder", True, "huggingface/BlenderbotForConditionalGeneration"),
            ("m2m100", "encoder-decoder", True, "huggingface/M2M100ForConditionalGeneration"),
        ),
        _family(
            Group.VISION,
            "vision_cnns",
            ("cnn-bn", "cnn", True, ""),
            ("vgg", "cnn", True, "torchbench/vgg16"),
            ("squeezenet", "cnn mobile", True, "torchbench/squeezenet1_1"),
            ("densenet", "cnn", True, "torchbench/densenet121"),
            ("shufflenet", "cnn mobile", False, "torchbench/shufflenet_v2_x1_0"),
            ("inception", "cnn", True, "timm/inception_v3"),
            ("resnet", "cnn", False, "torchbench/resnet18"),
            ("resnet-bottleneck", "cnn", False, "torchbench/resnet50"),
            ("regnet", "cnn", False, "torchbench/timm_regnet"),
            ("convnext", "cnn", True, "timm/convnext_base"),
            ("convnextv2", "cnn", True, "timm/convnextv2_nano.fcmae_ft_in22k_in1k"),
            ("mobilenet-v1", "cnn mobile", True, ""),
            ("mobilenet-v2", "cnn mobile", True, "timm/mobilenetv2_100"),
            ("efficientnet", "cnn mobile", True, "timm/tf_efficientnet_b0"),
        ),
        _family(
            Group.VISION,
            "vision_transformers",
            ("vit", "transformer", True, "torchbench/timm_vision_transformer"),
            ("deit", "transformer", True, "timm/deit_base_distilled_patch16_224"),
            ("beit", "transformer", True, "timm/beit_base_patch16_224"),
            ("dinov2", "transformer", True, "timm/vit_base_patch14_dinov2.lvd142m"),
            ("swin", "transformer", True, "timm/swin_base_patch4_window7_224"),
            ("mobilevit", "transformer mobile", True, "timm/mobilevit_s"),
            ("poolformer", "transformer", True, "timm/poolformer_m36"),
            ("vit-mae", "transformer autoencoder", True, ""),
        ),
        _family(
            Group.VISION,
            "vision_dense",
            ("unet", "segmentation cnn", True, "torchbench/pytorch_unet"),
            ("deeplab", "segmentation cnn", True, ""),
            ("segformer", "segmentation transformer", True, ""),
            ("dpt", "segmentation transformer", True, ""),
            ("detr", "detection transformer", True, ""),
            ("yolos", "detection transformer", True, ""),
            ("yolo", "detection cnn", False, "torchbench/yolov3"),
        ),
        _family(
            Group.GENERATIVE,
            "generative",
            ("diffusion-unet", "diffusion", True, "torchbench/stable_diffusion_unet"),
            ("dit", "diffusion transformer", True, ""),
            ("vae", "autoencoder", True, ""),
            ("dcgan", "adversarial", False, "torchbench/dcgan"),
            ("super-resolution", "super-resolution", False, ""),
        ),
        _family(
            Group.AUDIO,
            "audio",
            ("wav2vec2", "transformer ctc", True, ""),
            ("hubert", "transformer ctc", True, ""),
            ("wavlm", "transformer ctc", True, ""),
            ("whisper", "transformer encoder-decoder", True, "huggingface/openai/whisper-tiny"),
            ("audio-spectrogram-transformer", "transformer", True, ""),
            ("speech-commands", "cnn", True, ""),
            ("wavenet", "cnn", True, ""),
            ("deep-speech", "gru ctc", True, ""),
        ),
        _family(
            Group.MULTIMODAL,
            "multimodal",
            ("clip", "contrastive", True, "torchbench/hf_clip"),
            ("siglip", "contrastive", True, "timm/vit_base_patch16_siglip_256"),
            ("blip", "caption", True, ""),
            ("vilt", "question-answering", True, ""),
            ("llava", "decoder", True, "torchbench/llava"),
        ),
        _family(
            Group.RECURRENT,
            "recurrent",
            ("lstm", "language-model", True, ""),
            ("gru", "language-model", True, ""),
            ("rnn", "language-model", True, ""),
            ("bilstm", "tagger", True, ""),
            ("seq2seq-attention", "encoder-decoder cell", True, ""),
            ("lstm-cell", "time-series cell", True, ""),
        ),
        _family(
            Group.RECOMMENDATION,
            "recommendation",
            ("dlrm", "embedding-bag", True, "torchbench/dlrm"),
            ("wide-deep", "embedding-bag", True, ""),
            ("deepfm", "embedding", True, ""),
            ("two-tower", "embedding-bag", True, ""),
            ("deep-recommender", "autoencoder", True, "torchbench/nvidia_deeprecommender"),
            ("sasrec", "embedding transformer", True, ""),
        ),
        _family(
            Group.GRAPH,
            "graphs",
            ("gcn", "scatter", True, "torchbench/basic_gnn_gcn"),
            ("gat", "scatter attention", True, ""),
            ("gin", "scatter", True, "torchbench/basic_gnn_gin"),
            ("graphsage", "scatter", True, "torchbench/basic_gnn_sage"),
            ("edgecnn", "scatter", True, "torchbench/basic_gnn_edgecnn"),
        ),
        _family(
            Group.TABULAR,
            "tabular",
            ("ft-transformer", "transformer", True, ""),
            ("saint", "transformer", True, ""),
            ("tabnet", "sort", True, ""),
            ("neural-trees", "trees", True, ""),
        ),
        _family(
            Group.REINFORCEMENT,
            "reinforcement",
            ("dqn", "value cnn", False, ""),
            ("actor-critic", "policy", False, ""),
            ("sac", "policy value", True, "torchbench/soft_actor_critic"),
        ),
        _family(
            Group.TORCHVISION,
            "torchvision_models",
            ("torchvision-resnet18", "cnn", False, "torchbench/resnet18"),
            ("torchvision-resnext50", "cnn", False, "torchbench/resnext50_32x4d"),
            ("torchvision-mobilenet-v3", "cnn mobile", True, "torchbench/mobilenet_v3_large"),
            ("torchvision-mnasnet", "cnn mobile", True, "torchbench/mnasnet1_0"),
            ("torchvision-shufflenet", "cnn mobile", False, "torchbench/shufflenet_v2_x1_0"),
            ("torchvision-lraspp", "segmentation cnn", False, ""),
        ),
        _family(
            Group.TIMM,
            "timm_models",
            ("timm-ghostnet", "cnn mobile", True, "timm/ghostnet_100"),
            ("timm-repvgg", "cnn", False, "timm/repvgg_a2"),
            ("timm-nfnet", "cnn", True, "timm/nfnet_l0"),
            ("timm-visformer", "transformer", True, "timm/visformer_small"),
            ("timm-mixer", "mlp", True, "timm/mixer_b16_224"),
        ),
        _family(
            Group.PERF,
            "perf",
            *(
                (f"perf-{name}", "training-size", name != "resnet", "")
                for name in (
                    *("gpt2", "bert", "llama", "t5", "vit", "resnet"),
                    *("convnext", "lstm", "mlp", "dlrm", "unet", "cnn"),
                )
            ),
        ),
    )
    for entry in family
}

# What `relaxgrad train --all` trains: one of each kind, in a few minutes.
CORE = (
    *("seed-example", "mlp", "cnn-bn", "lstm", "gru", "transformer-encoder", "gpt2", "bert"),
    *("llama", "t5", "vit", "resnet", "convnext", "distilbert", "mistral"),
)


# What `relaxgrad report` reports on by default: a dozen, of all kinds.
REPORTED = (
    *("mlp", "cnn-bn", "lstm", "transformer-encoder", "gpt2", "bert", "llama", "t5", "vit", "resnet"),
    *("dlrm", "gcn"),
)


def select(what: str) -> list[str]:
    """Names of the zoo: "all" (but for the groups in OPTIONAL and TIMED), "core", a group, or a tag, as "long-context".

    Raises UserError where nothing is called so.
    """
    if what == "all":
        return [name for name, entry in ZOO.items() if entry.group not in (*OPTIONAL, *TIMED)]
    if what == "core":
        return list(CORE)
    found = [name for name, entry in ZOO.items() if what == entry.group or what in entry.tags]
    if not found:
        tags = sorted({tag for entry in ZOO.values() for tag in entry.tags})
        raise UserError(
            f"no part of the zoo is called {what!r}; groups: all, core, {', '.join(Group)}; tags: {', '.join(tags)}"
        )
    return found
