// k6, as its documentation recommends for much load: bodies are thrown away where nothing looks at them.
import http from 'k6/http';
import { check } from 'k6';

const scenario = __ENV.BENCH_SCENARIO;
const small = `${__ENV.BENCH_BASE}/small.txt`;
const json = `${__ENV.BENCH_BASE}/json`;
const kilobyte = JSON.stringify({ name: 'ada', text: 'x'.repeat(1000) });
const asJson = { headers: { 'Content-Type': 'application/json' } };
const user = { user: 'ada', password: 'correct horse battery staple' };
const order = { item: 7, count: 2 };

export const options = {
  vus: Number(__ENV.BENCH_CONNECTIONS),
  duration: `${__ENV.BENCH_SECONDS}s`,
  discardResponseBodies: scenario !== 'steps',
  insecureSkipTLSVerify: true,
};

function steps() {
  const login = http.post(json, JSON.stringify(user), asJson);
  check(login, { 'logged in': (r) => r.status === 200 && r.json('ok') === true });
  const browse = http.get(small, { headers: { Authorization: `Bearer ${login.json('token')}` } });
  check(browse, { 'something to see': (r) => r.status === 200 && r.body.includes('small') });
  const ordered = http.post(json, JSON.stringify(order), asJson);
  check(ordered, { ordered: (r) => r.status === 200 && r.json('ok') === true });
}

const work = {
  get: () => http.get(small),
  tls: () => http.get(small),
  post: () => http.post(json, kilobyte, asJson),
  steps,
}[scenario];

export default function () {
  work();
}
