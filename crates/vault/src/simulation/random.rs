//! Random schedules of whole servers in virtual time. A seed repeats a run exactly: everything runs on one thread, and this engine's
//! random numbers decide every delay, lost answer and kill.

mod verdict;

use super::describe::describe;
use super::port::Port;
use super::process::Process;
use super::profile::Profile;
use super::request::{Op, Reply};
use super::world::{Note, World};
use super::{Server, Variant, server};
use crate::lease::Timing;
use std::collections::BTreeMap;
use std::time::Duration;

/// End of the faults, and the time in which the run then has to settle, in microseconds.
const END: u64 = 60_000_000;
const CALM: u64 = 120_000_000;
/// TTL of the lease, and the time limit of a request to the bucket, in microseconds.
const TTL: u64 = 10_000_000;
const GIVEN_UP: u64 = 1_000_000;
/// Fewer states than this stay restorable in a run.
const KEEP_STATES: u64 = 4;
/// Maximum number of kept lines of a schedule.
const LINES: usize = 4000;

/// Returns the next random number (SplitMix64).
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

enum Event {
    Resume(usize),
    Effect {
        server: usize,
        slot: usize,
        after: u64,
    },
    Late(usize, Op),
    Answer {
        server: usize,
        slot: usize,
        reply: Reply,
    },
    /// End of a sleep.
    Wake {
        server: usize,
        slot: usize,
    },
    Deliver(String),
    KillOne,
    Kill(usize),
    Boot {
        ask: bool,
    },
    Rollout,
    Terminate(Vec<usize>),
    Jump,
}

struct Running {
    name: String,
    process: Process,
    alive: bool,
    terminated: bool,
    leads: bool,
    reader: bool,
    drift: f64,
    /// Microseconds by which its clock is ahead.
    ahead: u64,
    paused_until: u64,
    seen: usize,
    /// Requests in flight; true for those that take effect even if the process is killed.
    lands: BTreeMap<usize, bool>,
}

/// Result of a run.
#[derive(Debug, Default, Clone)]
pub(super) struct Outcome {
    pub(super) violations: Vec<String>,
    /// Schedule, one request a line.
    pub(super) schedule: Vec<String>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Longest times without a leader in seconds, by the end of the previous one.
    pub(super) without: BTreeMap<&'static str, f64>,
}

struct Run {
    world: World,
    keep_states: u64,
    profile: Profile,
    variant: Variant,
    random: u64,
    now: u64,
    count: u64,
    events: BTreeMap<(u64, u64), Event>,
    servers: Vec<Running>,
    leads: Vec<u64>,
    gone: Vec<(u64, &'static str)>,
    counts: BTreeMap<&'static str, u64>,
    /// True if the schedule is recorded.
    written: bool,
    lines: std::collections::VecDeque<String>,
}

/// Performs one run; after a violation, repeats it to record its schedule.
pub(super) fn run(seed: u64, profile: Profile, variant: impl Into<Variant>) -> Outcome {
    let variant = variant.into();
    let outcome = once(seed, profile, variant, false);
    if outcome.violations.is_empty() { outcome } else { once(seed, profile, variant, true) }
}

/// Performs one run, with its schedule or without.
pub(super) fn once(seed: u64, profile: Profile, variant: Variant, written: bool) -> Outcome {
    let mut run = Run {
        world: World::new(seed % KEEP_STATES, Some(0)),
        keep_states: seed % KEEP_STATES,
        profile,
        variant,
        random: seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed,
        now: 0,
        count: 0,
        events: BTreeMap::new(),
        servers: Vec::new(),
        leads: Vec::new(),
        gone: Vec::new(),
        counts: BTreeMap::new(),
        written,
        lines: std::collections::VecDeque::new(),
    };
    run.plan();
    while let Some(((now, _), event)) = run.events.pop_first() {
        if now > END + CALM || !run.world.violations.is_empty() {
            break;
        }
        run.now = now;
        run.world.now = Some(i64::try_from(now / 1000).unwrap());
        run.happen(event);
        if now > END + TTL && run.settled() {
            break;
        }
    }
    run.judge()
}

impl Run {
    /// Returns a random number, evenly distributed in `[0, 1)`.
    fn dice(&mut self) -> f64 {
        (next(&mut self.random) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn chance(&mut self, p: f64) -> bool {
        self.dice() < p
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + next(&mut self.random) % (high - low).max(1)
    }

    /// Returns a random number, exponentially distributed with this mean.
    fn about(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.dice()).ln() * mean as f64) as u64
    }

    fn pause(&mut self) -> u64 {
        if self.now < END && self.chance(self.profile.pause) { self.between(0, 4 * TTL) } else { 0 }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.insert((time, self.count), event);
    }

    fn line(&mut self, text: impl FnOnce() -> String) {
        if !self.written {
            return;
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:8.3} {}", self.now as f64 / 1e6, text()));
    }

    fn plan(&mut self) {
        self.boot(false, false);
        self.boot(false, true);
        for _ in 0..self.profile.standbys {
            self.boot(false, false);
        }
        for i in 0..self.profile.deliveries {
            let kind = if self.chance(0.4) { 'a' } else { 'd' };
            let time = self.between(0, END / 10 * 9);
            self.at(time, Event::Deliver(format!("{kind}{i}")));
        }
        for _ in 0..self.profile.kills {
            let time = self.between(1_000_000, END);
            self.at(time, Event::KillOne);
        }
        for _ in 0..self.profile.rollouts {
            let time = self.between(1_000_000, END);
            self.at(time, Event::Rollout);
        }
        for _ in 0..self.profile.jumps {
            let time = self.between(1_000_000, END);
            self.at(time, Event::Jump);
        }
        self.at(END, Event::Boot { ask: false });
    }

    fn boot(&mut self, ask: bool, reader: bool) {
        let name = if reader { "reader".to_owned() } else { format!("s{}", self.servers.len()) };
        let exponent = self.dice() * 2.0 - 1.0;
        let port = Port::new(next(&mut self.random));
        let timing =
            Timing { ttl: Duration::from_micros(TTL), renew: Duration::from_secs(3), poll: Duration::from_secs(1) };
        let mut server = Server::new(&name, port.clone(), timing, self.keep_states, self.variant);
        server.hasty = self.profile.drift > 2.0;
        server.eager = self.profile.slow_network;
        let process = if reader {
            Process::new(port, server::reader(server))
        } else {
            Process::new(port, server::whole(server, ask))
        };
        self.line(|| format!("{name} starts"));
        let ahead = self.between(0, 1_000_000_000);
        self.servers.push(Running {
            name,
            process,
            alive: true,
            terminated: false,
            leads: false,
            reader,
            drift: self.profile.drift.powf(exponent),
            ahead,
            paused_until: 0,
            seen: 0,
            lands: BTreeMap::new(),
        });
        self.at(self.now, Event::Resume(self.servers.len() - 1));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Resume(server) => self.resume(server),
            Event::Effect { server, slot, after } => self.effect(server, slot, after),
            Event::Late(server, op) => {
                let reply = self.world.apply(&op);
                let name = self.servers[server].name.clone();
                self.line(|| format!("{} [lands late]", describe(&name, &op, Some(&reply))));
            }
            Event::Answer { server, slot, reply } => {
                let running = &self.servers[server];
                if !running.alive {
                    return;
                }
                if running.paused_until > self.now {
                    let until = running.paused_until;
                    return self.at(until, Event::Answer { server, slot, reply });
                }
                running.process.port.answer(slot, reply);
                self.resume(server);
            }
            Event::Wake { server, slot } => self.happen(Event::Answer { server, slot, reply: Reply::Done }),
            Event::Deliver(delivery) => self.deliver(delivery),
            Event::KillOne => {
                let living: Vec<usize> = self.living(|s| !s.reader);
                if !living.is_empty() {
                    let victim = living[self.between(0, living.len() as u64) as usize];
                    self.kill(victim, "kill");
                    let time = self.now + self.between(0, 3_000_000);
                    self.at(time, Event::Boot { ask: false });
                }
            }
            Event::Kill(server) => self.kill(server, "kill"),
            Event::Boot { ask } => self.boot(ask, false),
            Event::Rollout => {
                let old = self.living(|s| !s.reader);
                let ask = self.chance(0.5);
                self.boot(ask, false);
                if self.chance(0.8) {
                    let time = self.now + self.between(100_000, 5_000_000);
                    self.at(time, Event::Terminate(old));
                }
            }
            Event::Terminate(servers) => {
                for server in servers {
                    let running = &mut self.servers[server];
                    running.terminated = true;
                    running.process.port.terminate();
                    let name = running.name.clone();
                    self.line(|| format!("{name} gets SIGTERM"));
                    self.at(self.now + 10_000_000, Event::Kill(server));
                    self.resume(server);
                }
            }
            Event::Jump => {
                let living = self.living(|_| true);
                if !living.is_empty() {
                    let server = living[self.between(0, living.len() as u64) as usize];
                    let by = self.between(0, 3 * TTL);
                    self.servers[server].ahead += by;
                }
            }
        }
    }

    fn living(&self, which: impl Fn(&Running) -> bool) -> Vec<usize> {
        (0..self.servers.len()).filter(|i| self.servers[*i].alive && which(&self.servers[*i])).collect()
    }

    fn deliver(&mut self, delivery: String) {
        let live = self.living(|s| !s.terminated && !s.reader);
        if let Some(newest) = live.last() {
            let leader = live.iter().find(|server| self.servers[**server].leads);
            let (newest, leader) = (*newest, leader.copied());
            let to = match self.dice() {
                dice if dice < 0.4 => newest,
                dice if dice < 0.7 => leader.unwrap_or(newest),
                _ => live[self.between(0, live.len() as u64) as usize],
            };
            let name = self.servers[to].name.clone();
            self.line(|| format!("delivery {delivery} reaches {name}"));
            self.servers[to].process.port.deliver(&delivery);
            self.resume(to);
        }
        if self.now < END && self.chance(0.3) {
            let time = self.now + self.about(10_000_000);
            self.at(time, Event::Deliver(delivery));
        }
    }

    fn kill(&mut self, server: usize, why: &'static str) {
        let running = &mut self.servers[server];
        if !running.alive {
            return;
        }
        running.alive = false;
        if std::mem::take(&mut running.leads) {
            self.gone.push((self.now, why));
        }
        let name = running.name.clone();
        self.line(|| format!("{name} is killed"));
    }

    /// Runs a server until it only waits, processes its notes, and schedules its requests.
    fn resume(&mut self, server: usize) {
        let running = &mut self.servers[server];
        if !running.alive || running.paused_until > self.now {
            return; // an answer that waits for the end of the pause resumes it
        }
        let local = (self.now as f64 * running.drift) as u64 + running.ahead;
        let port = running.process.port.clone();
        port.set_now(Duration::from_micros(local));
        running.process.run();
        for note in port.take_notes() {
            self.hear(server, &note);
        }
        let issued = port.issued(self.servers[server].seen);
        self.servers[server].seen += issued.len();
        for (slot, op) in issued {
            self.schedule(server, slot, &op);
        }
        let running = &mut self.servers[server];
        if running.process.ended() {
            running.alive = false;
            running.leads = false;
        } else if !port.is_open() {
            let name = running.name.clone();
            self.world.bad(format!("{name} waits for what never comes"));
        }
    }

    fn hear(&mut self, server: usize, note: &Note) {
        let name = self.servers[server].name.clone();
        self.line(|| match note {
            Note::Deposed(why) => format!("{name} is deposed: {why}"),
            note => format!("{name}: {note:?}"),
        });
        self.world.check_report(&name, note);
        match note {
            Note::Lead(..) => {
                self.leads.push(self.now);
                self.servers.iter_mut().for_each(|s| s.leads = false);
                self.servers[server].leads = true;
            }
            Note::WentOn => *self.counts.entry("terms without a restore").or_default() += 1,
            Note::Deposed(_) => {
                *self.counts.entry("deposed").or_default() += 1;
                let own = self.world.holder().as_ref() == Some(&name);
                if own {
                    *self.counts.entry("deposed, lease still its own").or_default() += 1;
                }
                if std::mem::take(&mut self.servers[server].leads) && own {
                    self.gone.push((self.now, "deposed"));
                }
            }
            Note::Released if std::mem::take(&mut self.servers[server].leads) => self.gone.push((self.now, "release")),
            _ => {}
        }
    }

    fn schedule(&mut self, server: usize, slot: usize, op: &Op) {
        if let Op::Sleep(time) = op {
            let real = (time.as_micros() as f64 / self.servers[server].drift) as u64;
            let pause = if self.profile.slow_network { 0 } else { self.pause() };
            self.stall(server, pause);
            let time = self.now + real.max(1) + pause;
            return self.at(time, Event::Wake { server, slot });
        }
        if self.profile.slow_network
            && op.is_outside()
            && self.world.holder().as_ref() != Some(&self.servers[server].name)
        {
            let name = self.servers[server].name.clone();
            self.world.bad(format!("{}, though the lease is not its own any more", describe(&name, op, None)));
        }
        let mut first = self.about(20_000);
        let before = self.pause();
        first += before;
        let after = self.about(20_000) + self.pause();
        let lands = self.chance(0.5);
        self.servers[server].lands.insert(slot, lands);
        if !self.profile.slow_network && self.chance(0.5) {
            self.stall(server, before); // the process sleeps, not only its request
        }
        if self.now < END && !matches!(op, Op::Spawn(_)) && self.chance(self.profile.lost) {
            let how = self.between(0, 3);
            if how > 0 && op.writes() {
                let late = if how == 2 { self.between(0, 2 * TTL) } else { 0 };
                self.at(self.now + first + late, Event::Late(server, op.clone()));
            }
            let name = self.servers[server].name.clone();
            self.line(|| describe(&name, op, Some(&Reply::Lost)));
            return self.at(self.now + GIVEN_UP, Event::Answer { server, slot, reply: Reply::Lost });
        }
        // No random number is drawn in profiles without refusals.
        let refused = self.profile.refused;
        if self.now < END && refused > 0.0 && op.is_of_bucket() && self.chance(refused) {
            let name = self.servers[server].name.clone();
            self.line(|| describe(&name, op, Some(&Reply::Refused)));
            return self.at(self.now + first + after, Event::Answer { server, slot, reply: Reply::Refused });
        }
        self.at(self.now + first, Event::Effect { server, slot, after });
    }

    fn stall(&mut self, server: usize, time: u64) {
        if time > 0 {
            let until = self.now + time;
            let running = &mut self.servers[server];
            running.paused_until = running.paused_until.max(until);
            let name = running.name.clone();
            self.line(|| format!("{name} is paused until {:.3}", until as f64 / 1e6));
            self.at(until, Event::Resume(server));
        }
    }

    fn effect(&mut self, server: usize, slot: usize, after: u64) {
        let running = &mut self.servers[server];
        let lands = running.lands.remove(&slot).unwrap_or_default();
        let op = running.process.port.asked(slot);
        if !running.alive && (matches!(op, Op::Spawn(_)) || !op.writes() || !lands) {
            return;
        }
        let name = running.name.clone();
        let reply = self.world.apply(&op);
        self.line(|| describe(&name, &op, Some(&reply)));
        if after > GIVEN_UP && !self.profile.slow_network && self.chance(0.5) {
            self.stall(server, after);
        }
        self.at(self.now + after, Event::Answer { server, slot, reply });
    }
}
