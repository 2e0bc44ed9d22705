"""The sides of the comparison on GPUs. Each is made for a filled case and offers forward() -> O, prepare_backward() and
backward() -> (dQ, dK, dV), with O as rows x heads x head_dim and dQ in the shape of Q."""

import torch

import jfa_capi


class Jfa:
    """This library, through its C ABI."""

    name = "jfa"

    def __init__(self, case, library, deterministic=False):
        q_offsets = None if case.broadcast else case.q_offsets
        window = (-1, -1) if case.broadcast else (-1, 0)
        self.attention = jfa_capi.Attention(
            library, case.q, case.k, case.v, case.grad_o, case.kv_offsets, case.longest, q_offsets, case.longest_q,
            window, deterministic=deterministic)
        self.attention.update()
        self.attention.check_batch()
        self.update, self.forward = self.attention.update, self.attention.forward

    def prepare_backward(self):
        self.forward()

    def backward(self):
        return self.attention.backward()

    def lse(self, case, b):
        """LSE of one sequence: [heads, queries]."""
        if case.broadcast:
            return self.attention.lse.view(case.batch, case.heads, -1)[b]
        return self.attention.lse.view(case.heads, -1)[:, case.rows_of_o(b)]

    def close(self):
        self.attention.close()


class Autograd:
    """A peer that is a differentiable PyTorch function; `call` makes it."""

    def __init__(self, case):
        self.case = case
        self.q = case.expanded_q().detach().requires_grad_()
        self.k, self.v = case.k.detach().requires_grad_(), case.v.detach().requires_grad_()
        self.function = self.call(case)

    def attend(self):
        result = self.function(self.q, self.k, self.v)
        return result[0] if isinstance(result, tuple) else result

    def forward(self):
        with torch.no_grad():
            return self.attend()

    def prepare_backward(self):
        self.o = self.attend()

    def backward(self):
        inputs = (self.q, self.k, self.v)
        grad_q, grad_k, grad_v = torch.autograd.grad(self.o, inputs, self.case.grad_o, retain_graph=True)
        return self.case.sum_grad_q(grad_q), grad_k, grad_v

    def close(self):
        pass


class FlashAttention4(Autograd):
    """FlashAttention-4's kernels for Hopper."""

    name = "fa4"

    @staticmethod
    def call(case):
        from flash_attn.cute import flash_attn_varlen_func

        return lambda q, k, v: flash_attn_varlen_func(
            q, k, v, cu_seqlens_q=case.q_offsets, cu_seqlens_k=case.kv_offsets, max_seqlen_q=case.longest_q,
            max_seqlen_k=case.longest, softmax_scale=case.scale, causal=not case.broadcast)


class FlashAttention2(Autograd):
    """FlashAttention-2, as PyTorch ships it."""

    name = "fa2"

    @staticmethod
    def call(case):
        from torch.nn.attention.varlen import varlen_attn

        window = (-1, -1) if case.broadcast else (-1, 0)
        return lambda q, k, v: varlen_attn(
            q, k, v, case.q_offsets, case.kv_offsets, case.longest_q, case.longest, scale=case.scale,
            window_size=window)


class Cudnn:
    """cuDNN's attention over ragged tensors, through its frontend."""

    name = "cudnn"

    def __init__(self, case):
        import cudnn

        self.case, self.cudnn = case, cudnn
        self.handle = cudnn.create_handle()
        cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
        batch, heads, dim = case.batch, case.heads, case.head_dim
        self.q = case.expanded_q()
        self.o = torch.full_like(self.q, float("nan"))
        self.stats = torch.empty(batch, heads, case.longest_q, 1, device=self.q.device)
        wide = max(case.rows_o, case.total_kv) * heads * dim >= 1 << 31
        self.index = torch.int64 if wide else torch.int32
        column = lambda t: t.view(-1, 1, 1, 1)
        lengths = lambda x: column(torch.tensor(x, device=self.q.device, dtype=torch.int32))
        elements = lambda offsets: column((offsets.long() * (heads * dim)).to(self.index))
        self.buffers = {
            "q": self.q,
            "k": case.k,
            "v": case.v,
            "lengths_q": lengths(case.query_lengths),
            "lengths_kv": lengths(case.lengths),
            "offsets_q": elements(case.q_offsets),
            "offsets_kv": elements(case.kv_offsets),
        }
        packed = lambda rows: ([batch, heads, rows, dim], [rows * heads * dim, dim, heads * dim, 1])
        self.shape_q, self.shape_kv = packed(case.longest_q), packed(case.longest)
        # Per row statistics, dense: [batch, heads, longest, 1].
        self.shape_stats = (list(self.stats.shape), list(self.stats.stride()))
        self.execute_forward = self.build_forward()

    def graph(self):
        """A graph with its inputs: tensors by name."""
        types = self.cudnn.data_type
        graph = self.cudnn.pygraph(
            io_data_type=types.BFLOAT16, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT,
            handle=self.handle)
        index = types.INT64 if self.index is torch.int64 else types.INT32
        inputs = {}
        for name in ("q", "k", "v"):
            dim, stride = self.shape_q if name == "q" else self.shape_kv
            inputs[name] = graph.tensor(name=name, dim=dim, stride=stride, data_type=types.BFLOAT16)
        for name in ("lengths_q", "lengths_kv", "offsets_q", "offsets_kv"):
            dim, kind = list(self.buffers[name].shape), types.INT32 if name.startswith("lengths") else index
            inputs[name] = graph.tensor(name=name, dim=dim, stride=[1, 1, 1, 1], data_type=kind)
        inputs["q"].set_ragged_offset(inputs["offsets_q"])
        for name in ("k", "v"):
            inputs[name].set_ragged_offset(inputs["offsets_kv"])
        options = dict(
            q=inputs["q"], k=inputs["k"], v=inputs["v"], attn_scale=self.case.scale, use_padding_mask=True,
            seq_len_q=inputs["lengths_q"], seq_len_kv=inputs["lengths_kv"])
        if not self.case.broadcast:
            options["use_causal_mask"] = True
        return graph, inputs, options

    def compile(self, graph, inputs, others):
        """Builds the graph; returns what runs it. `others` are further tensors with their buffers."""
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([self.cudnn.heur_mode.A, self.cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        workspace = torch.empty(max(1, graph.get_workspace_size()), device=self.q.device, dtype=torch.uint8)
        pack = {tensor: self.buffers[name] for name, tensor in inputs.items()} | others
        return lambda: graph.execute(pack, workspace, handle=self.handle)

    @staticmethod
    def output(tensor, shape, offsets):
        tensor.set_output(True).set_dim(shape[0]).set_stride(shape[1])
        tensor.set_ragged_offset(offsets)

    def build_forward(self):
        graph, inputs, options = self.graph()
        o, stats = graph.sdpa(name="forward", generate_stats=True, **options)
        self.output(o, self.shape_q, inputs["offsets_q"])
        stats.set_output(True).set_dim(self.shape_stats[0]).set_stride(self.shape_stats[1])
        stats.set_data_type(self.cudnn.data_type.FLOAT)
        return self.compile(graph, inputs, {o: self.o, stats: self.stats})

    def forward(self):
        self.execute_forward()
        return self.o

    def prepare_backward(self):
        self.forward()
        graph, inputs, options = self.graph()
        types = self.cudnn.data_type
        dim, stride = self.shape_q
        o, grad_o = (graph.tensor(name=n, dim=dim, stride=stride, data_type=types.BFLOAT16) for n in ("o", "grad_o"))
        for tensor in (o, grad_o):
            tensor.set_ragged_offset(inputs["offsets_q"])
        dim, stride = self.shape_stats
        stats = graph.tensor(name="stats", dim=dim, stride=stride, data_type=types.FLOAT)
        outputs = graph.sdpa_backward(name="backward", o=o, dO=grad_o, stats=stats, **options)
        self.grads = [torch.full_like(t, float("nan")) for t in (self.q, self.case.k, self.case.v)]
        for tensor, shape, offsets in zip(
            outputs, (self.shape_q, self.shape_kv, self.shape_kv), ("offsets_q", "offsets_kv", "offsets_kv")):
            self.output(tensor, shape, inputs[offsets])
        others = {o: self.o, grad_o: self.case.grad_o, stats: self.stats} | dict(zip(outputs, self.grads))
        self.execute_backward = self.compile(graph, inputs, others)

    def backward(self):
        self.execute_backward()
        return self.case.sum_grad_q(self.grads[0]), *self.grads[1:]

    def close(self):
        torch.cuda.synchronize()
        self.execute_forward = self.execute_backward = None
        self.cudnn.destroy_handle(self.handle)


PEERS = (FlashAttention4, Cudnn, FlashAttention2)
