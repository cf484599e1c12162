"""The data types, base classes and protocols that all parts of Motet share.

Each stage takes one of these types and returns the next. All of them are immutable.

    play -> Episode (a tree of Rounds) -> score -> credit -> TrainSample
         -> pack -> Batch -> learn -> publish

Names of arrays and tensors end in their axes: B sequences, L tokens, P prompts, N agents, T turns,
G samples of one agent for one prompt, J joint actions, S samples of a training step.

This package does not import torch: environments and records handle strings and numbers only.

episodes.py      tasks, messages, completions, and the trees that episodes are
row_values.py    the values of rows and tasks, and their way to JSON and back
tools.py         tools, their calls, and which arguments fit
environment.py   the base class of environments
abilities.py     what an environment may do besides being played
terms.py         what is said about a joint action besides its rewards, and its recorded names
requests.py      requests to the models, and the protocols Sampler, Scorer and Publisher
training.py      the team, scores, and the samples to train on
"""

from motet.core.abilities import (
    ABILITIES,
    Ability,
    Chats,
    Demonstrates,
    Draws,
    Grades,
    NamesConventions,
    OwnsTasks,
    PlaysAlone,
    RanksTasks,
    ReadsRows,
    Solves,
    Votes,
)
from motet.core.environment import Drawing, Environment, Score, State, Transition, class_name
from motet.core.episodes import (
    Boundary,
    Chat,
    Completion,
    Demonstration,
    End,
    Episode,
    Fault,
    Grade,
    Message,
    Outcome,
    Path,
    Prompt,
    Reply,
    Restriction,
    Round,
    StopReason,
    Task,
    Usage,
    walk,
)
from motet.core.requests import (
    OnAnswer,
    Publisher,
    Sampled,
    Sampler,
    SampleRequest,
    Scorer,
    ScoreRequest,
    ValueEstimate,
    ValueRequest,
)
from motet.core.tools import Tool, ToolCall, ToolSchema
from motet.core.training import (
    CreditState,
    SampleId,
    SamplingState,
    Scores,
    Success,
    TaskEvidence,
    Team,
    TrainSample,
    ValueId,
    ValueSample,
)

__all__ = [
    "ABILITIES",
    "Ability",
    "Boundary",
    "Chat",
    "Chats",
    "Completion",
    "CreditState",
    "Demonstrates",
    "Demonstration",
    "Drawing",
    "Draws",
    "End",
    "Environment",
    "Episode",
    "Fault",
    "Grade",
    "Grades",
    "Message",
    "NamesConventions",
    "OnAnswer",
    "Outcome",
    "OwnsTasks",
    "Path",
    "PlaysAlone",
    "Prompt",
    "Publisher",
    "RanksTasks",
    "ReadsRows",
    "Reply",
    "Restriction",
    "Round",
    "SampleId",
    "SampleRequest",
    "Sampled",
    "Sampler",
    "SamplingState",
    "Score",
    "ScoreRequest",
    "Scorer",
    "Scores",
    "Solves",
    "State",
    "StopReason",
    "Success",
    "Task",
    "TaskEvidence",
    "Team",
    "Tool",
    "ToolCall",
    "ToolSchema",
    "TrainSample",
    "Transition",
    "Usage",
    "ValueEstimate",
    "ValueId",
    "ValueRequest",
    "ValueSample",
    "Votes",
    "class_name",
    "walk",
]
