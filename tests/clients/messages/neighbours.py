"""Other sessions beside the agent of agent_messages.py: chats of plain text that grow, without marks, so that together
they need more KV blocks than there are."""

import threading

import openai


class Neighbours:
    """Use as a context. Each session begins again when its chat is long."""

    def __init__(self, url, n, model="demo", n_tokens=1400):
        self.url, self.n, self.model, self.n_tokens = url, n, model, n_tokens
        self.stop = threading.Event()
        self.turns = [0] * n
        self.errors = []

    def _session(self, index):
        client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0)
        round_ = 0
        while not self.stop.is_set():
            round_ += 1
            messages = [{"role": "user", "content": f"Session {index}, round {round_}. " + "Tell me more of this. " * 20}]
            n_prompt = 0
            while n_prompt < self.n_tokens and not self.stop.is_set():
                try:
                    reply = client.chat.completions.create(model=self.model, messages=messages, max_tokens=40)
                except openai.APIError as e:
                    self.errors.append(e)
                    return
                self.turns[index] += 1
                n_prompt = reply.usage.prompt_tokens
                messages += [{"role": "assistant", "content": reply.choices[0].message.content},
                             {"role": "user", "content": "Go on. " * 10}]

    def __enter__(self):
        self.threads = [threading.Thread(target=self._session, args=(i,)) for i in range(self.n)]
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for t in self.threads:
            t.join()
