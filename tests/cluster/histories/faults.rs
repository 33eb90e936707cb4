//! Faults between Listless and etcd, one after the other.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::World;
use super::dice::Dice;
use crate::relay::Relay;
use crate::rig::control_plane::Component;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The apiserver is killed, and started again some seconds later.
    Kill,
    /// The apiserver is stopped cleanly, and started again.
    Stop,
    /// The apiserver does not run for some seconds.
    Pause,
    /// etcd compacts all revisions before the current one.
    Compact,
    /// All connections to the apiserver are closed, and none can be made for a moment.
    Cut,
    /// No byte passes to the apiserver or back for some seconds.
    Stall,
    /// Another apiserver on the same etcd takes over, and for some seconds etcd tells it nothing.
    Lag,
    /// The token of Listless's user is replaced; at the apiserver's next start the old one ends.
    Rotate,
}

// === impl Fault ===

impl Fault {
    const ALL: [Self; 8] = [
        Self::Cut,
        Self::Kill,
        Self::Compact,
        Self::Pause,
        Self::Lag,
        Self::Rotate,
        Self::Stop,
        Self::Stall,
    ];

    async fn happen(self, world: &World, dice: &mut Dice) -> Result<()> {
        let time = Duration::from_millis(dice.between(500, 4_000));
        let plane = &world.plane;
        match self {
            Self::Kill | Self::Stop => {
                if self == Self::Kill {
                    plane.kill(Component::Apiserver)?;
                } else {
                    // The apiserver waits for its requests to end. The relay closes those it waits
                    // for.
                    world.relay.cut(Duration::ZERO).await;
                    plane.stop(Component::Apiserver)?;
                }
                tokio::time::sleep(time).await;
                plane.start_again(Component::Apiserver)?;
                plane.ready().await?;
            }
            Self::Pause => {
                plane.pause(Component::Apiserver)?;
                tokio::time::sleep(time).await;
                plane.unpause(Component::Apiserver)?;
            }
            Self::Compact => drop(world.truth.compact().await?),
            Self::Cut => world.relay.cut(time / 2).await,
            Self::Stall => world.relay.stall(time).await,
            Self::Lag => lag(world, time).await?,
            Self::Rotate => {
                let token = plane.replace_token()?;
                fs::write(&world.token_file, token)?;
            }
        }
        Ok(())
    }
}

/// Lets a second apiserver serve new connections while it knows ever older state, and the first one
/// serve them again before it has caught up.
async fn lag(world: &World, time: Duration) -> Result<()> {
    let first = world.plane.server()?.authority().to_owned();
    let etcd = Relay::start(&world.plane.etcd_address().to_string()).await?;
    let second = world.plane.second_apiserver(etcd.address()).await?;
    let shifts = async {
        tokio::time::sleep(time / 4).await;
        world.relay.lead_to(second.authority());
        world.relay.cut(Duration::ZERO).await;
        tokio::time::sleep(time / 4).await;
        world.relay.lead_to(&first);
    };
    tokio::join!(etcd.stall(time), shifts);
    tokio::time::sleep(time / 4).await;
    world.relay.cut(Duration::ZERO).await;
    Ok(())
}

/// Injects faults for a while, each kind once before any comes twice; returns the number of each.
pub async fn faults(
    world: Arc<World>,
    mut dice: Dice,
    time: Duration,
) -> Result<BTreeMap<Fault, usize>> {
    let mut counts = BTreeMap::new();
    let end = std::time::Instant::now() + time;
    while std::time::Instant::now() < end {
        for fault in Fault::ALL {
            // The actors have time to continue normally before the next fault.
            tokio::time::sleep(Duration::from_millis(dice.between(1_500, 5_000))).await;
            fault.happen(&world, &mut dice).await?;
            *counts.entry(fault).or_default() += 1;
        }
    }
    Ok(counts)
}
