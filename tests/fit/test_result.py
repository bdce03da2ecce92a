from collections import OrderedDict

import torch

from gpytorch_nkn.fit.result import copy_model
from tests.fit.models import network_model


def test_a_copy_shares_neither_values_nor_hooks_with_its_model():
    model = network_model()
    model.covar_module.register_forward_hook(lambda *_: None)
    copy = copy_model(model)
    assert len(copy.covar_module._forward_hooks) == 1
    for name, parameter in copy.named_parameters():
        parameter.data.add_(1.0)
        assert not torch.equal(parameter, model.get_parameter(name)), name
    collections = [
        value
        for module in (*copy.modules(), *model.modules())
        for value in vars(module).values()
        if isinstance(value, OrderedDict | dict | set)
    ]
    assert len({id(value) for value in collections}) == len(collections)
    copy.mean_module.register_forward_hook(lambda *_: None)
    assert not model.mean_module._forward_hooks
    assert not copy.likelihood._forward_hooks
