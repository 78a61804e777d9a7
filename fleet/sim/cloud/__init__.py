"""The simulated cloud: group, balancer, EC2 and event bus on a virtual clock."""
