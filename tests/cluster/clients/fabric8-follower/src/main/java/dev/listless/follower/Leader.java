package dev.listless.follower;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;

/** Holds a lease of its own for as long as it runs. */
final class Leader {
  private final CompletableFuture<?> election;
  private volatile boolean done;

  /** Returns once it leads. */
  Leader(KubernetesClient client, String namespace, String instance, Report report)
      throws InterruptedException {
    CountDownLatch leads = new CountDownLatch(1);
    LeaderCallbacks callbacks = new LeaderCallbacks(
        () -> {
          report.count("leadership gained");
          leads.countDown();
        },
        () -> {
          if (!done) {
            report.failed("leadership lost");
          }
        },
        leader -> report.count("leaders seen"));
    election = client.leaderElector().withConfig(new LeaderElectionConfigBuilder()
        .withName(instance)
        .withLeaseDuration(Duration.ofSeconds(15))
        .withRenewDeadline(Duration.ofSeconds(10))
        .withRetryPeriod(Duration.ofSeconds(2))
        .withLock(new LeaseLock(namespace, "leader-" + instance, instance))
        .withLeaderCallbacks(callbacks)
        .build()).build().start();
    leads.await();
  }

  void resign() {
    done = true;
    election.cancel(true);
  }
}
