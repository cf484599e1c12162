"""Write a trained team as one folder that others can use, and push it to the hub.

FOLDER/  README.md        the model card
         team.yaml        the config that plays, evaluates and serves the team
         policies/NAME/   one policy, in the format of transformers or PEFT
         models/NAME/     a base model that is not on the hub
         templates/       the chat templates that the config names
         code/  data/     the run's own environment and reward, and its held-out rows
"""

POLICIES, MODELS, TEMPLATES = "policies", "models", "templates"
CODE, DATA = "code", "data"
