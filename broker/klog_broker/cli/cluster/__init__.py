"""Commands that show and change the cluster: brokers and leaders."""
