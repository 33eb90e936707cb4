package dev.listless.follower;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Follows one namespace in every way fabric8 offers, on one client configured from KUBECONFIG alone.
 *
 * <p>Prints a line when everything follows. After a line {@code settle} on its standard input, it waits
 * until all copies hold the object {@code marker}. Then it prints the copies.
 */
public final class Main {
  private static final long SETTLE_NANOS = 120_000_000_000L;

  private final Map<String, Follower> followers = new LinkedHashMap<>();
  private final Report report = new Report();

  private Main() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      throw new IllegalArgumentException("usage: NAMESPACE INSTANCE");
    }
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      new Main().run(client, arguments[0], arguments[1]);
    }
    System.exit(0);
  }

  private void run(KubernetesClient client, String namespace, String instance) throws Exception {
    follow(client, namespace);
    Thread waiter = new Thread(() -> await(client, namespace));
    waiter.start();
    Leader leader = new Leader(client, namespace, instance, report);
    System.out.println("{\"ready\": true}");
    new BufferedReader(new InputStreamReader(System.in)).readLine();
    settle();
    waiter.join(1000);
    if (waiter.isAlive()) {
      report.failed("waitUntilCondition waits for what has happened");
    }
    leader.resign();
    Map<String, Map<String, String>> caches = new TreeMap<>();
    followers.forEach((name, follower) -> caches.put(name, follower.held()));
    System.out.println(report.line(caches));
  }

  private void follow(KubernetesClient client, String namespace) {
    var pods = client.pods().inNamespace(namespace);
    var maps = client.configMaps().inNamespace(namespace);
    followers.put("pods@informer", new Informer<>("pods", pods, report));
    followers.put(
        "pods-in@informer", new Informer<>("pods in", pods.withLabel("churn", "in"), report));
    followers.put("configmaps@informer", new Informer<>("configmaps", maps, report));
    followers.put(
        "configmaps-in@informer",
        new Informer<>("configmaps in", maps.withLabel("churn", "in"), report));
    followers.put("pods@watch", new PlainWatch<>("pods", pods.withoutLabel("absent"), report));
    followers.put(
        "configmaps-in@watch",
        new PlainWatch<>("configmaps in", maps.withLabel("churn", "in"), report));
  }

  private void await(KubernetesClient client, String namespace) {
    try {
      client.configMaps().inNamespace(namespace).withName("awaited").waitUntilCondition(
          map -> map != null && map.getData() != null && "yes".equals(map.getData().get("done")),
          3, TimeUnit.MINUTES);
      report.count("conditions met");
    } catch (RuntimeException failure) {
      report.failed("waitUntilCondition", failure);
    }
  }

  private void settle() throws InterruptedException {
    long deadline = System.nanoTime() + SETTLE_NANOS;
    while (System.nanoTime() < deadline
        && !followers.values().stream().allMatch(it -> it.held().containsKey("marker"))) {
      Thread.sleep(50);
    }
  }
}
