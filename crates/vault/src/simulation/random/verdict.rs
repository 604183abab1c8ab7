//! End and result of a run.

use super::{Event, GIVEN_UP, Outcome, Run, Running};
use crate::simulation::world::{Fact, How};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Run {
    /// Returns true if no late request is on its way and each acknowledged delivery is answered and recorded as done.
    pub(super) fn settled(&self) -> bool {
        let soon = (self.now + GIVEN_UP, 0);
        let late = |event: &Event| matches!(event, Event::Late(..) | Event::Effect { .. } | Event::Answer { .. });
        let waits = |server: &Running| server.alive && server.paused_until > self.now;
        if self.servers.iter().any(waits) || self.events.range(soon..).any(|(_, event)| late(event)) {
            return false;
        }
        let answered = |d: &String| self.world.facts.contains(&Fact::Done(d.clone()));
        let leads = self.servers.iter().any(|server| server.alive && server.leads);
        leads && self.world.acked.iter().all(answered) && self.world.at_rest().is_none()
    }

    pub(super) fn add(&mut self, what: &'static str, count: u64) {
        *self.counts.entry(what).or_default() += count;
    }

    pub(super) fn judge(mut self) -> Outcome {
        let (acked, leads) = (self.world.acked.clone(), self.leads.len() as u64);
        self.add("acknowledged", acked.len() as u64);
        self.add("leaders", leads);
        self.add("applies", self.world.spawned.len() as u64);
        self.add("applies started after interrupted was said", self.world.stale_spawns);
        self.add("statuses that went back", self.world.regressed);
        self.add("objects deleted", self.world.deleted);
        if self.world.violations.is_empty() {
            if let Some(wrong) = self.world.at_rest() {
                self.world.bad(wrong);
            }
            for d in acked.iter() {
                let posted = self.world.posts.iter().filter(|of| ***of == **d).count();
                let out = |how| self.world.facts.contains(&Fact::Out(d.clone(), how));
                let (fine, interrupted) = (out(How::Fine), out(How::Interrupted));
                let started = self.world.spawned.contains(&Arc::from(d.as_str()));
                if !fine && !interrupted {
                    self.world.bad(format!("never answered: {d}"));
                }
                self.add("posted twice", u64::from(posted > 1));
                self.add("interrupted, had started", u64::from(interrupted && started));
                self.add("interrupted, never started", u64::from(interrupted && !started));
            }
        }
        let mut without = BTreeMap::new();
        for (time, why) in &self.gone {
            match self.leads.iter().find(|lead| *lead > time) {
                Some(lead) => {
                    let seconds: &mut f64 = without.entry(*why).or_default();
                    *seconds = seconds.max((lead - time) as f64 / 1e6);
                }
                None => *self.counts.entry("no leader afterwards").or_default() += 1,
            }
        }
        Outcome {
            violations: self.world.violations.to_vec(),
            schedule: self.lines.into(),
            counts: self.counts,
            without,
        }
    }
}
