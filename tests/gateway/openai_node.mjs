// The unchanged Node SDK against a gateway: one line of JSON for what each caller got. Arguments: base URL, mode, and
// how many callers at once of which model, each of which says its own name.
import OpenAI from "openai";

const [baseURL, mode, many = "1", model = "house"] = process.argv.slice(2);

async function call(content) {
  const client = new OpenAI({ baseURL, apiKey: "anonymous" }); // pragma: allowlist secret
  const ask = { model, messages: [{ role: "user", content }] };
  const got = { text: "", finish: null, usage: null, error: null, code: null, status: null };
  try {
    if (mode === "whole") {
      const answer = await client.chat.completions.create(ask);
      Object.assign(got, { text: answer.choices[0].message.content, finish: answer.choices[0].finish_reason });
    } else if (mode === "models") {
      for await (const model of await client.models.list()) got.text += `${model.id} `;
    } else {
      const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
      for await (const chunk of stream) {
        got.text += chunk.choices[0]?.delta?.content ?? "";
        got.finish = chunk.choices[0]?.finish_reason ?? got.finish;
        got.usage = chunk.usage ?? got.usage;
      }
    }
  } catch (error) {
    Object.assign(got, { error: error.constructor.name, code: error.code ?? null, status: error.status ?? null });
  }
  console.log(JSON.stringify(got));
}

await Promise.all(Array.from({ length: Number(many) }, (_, number) => call(`node ${number}`)));
