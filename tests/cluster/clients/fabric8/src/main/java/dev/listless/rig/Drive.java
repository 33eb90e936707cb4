package dev.listless.rig;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Threads that all list the same pods every period and nothing else, as services in the field do.
 *
 * <p>The program answers each line of standard input with a line of JSON: its work so far. It ends
 * with its standard input.
 */
final class Drive {
  private final KubernetesClient client;
  private final String namespace;
  private final Tally tally = new Tally();

  private Drive(KubernetesClient client, String namespace) {
    this.client = client;
    this.namespace = namespace;
  }

  /** Arguments: the namespace, how many threads, and the period in milliseconds. */
  static void run(String namespace, int threads, long periodMillis) throws IOException {
    ScheduledExecutorService executor = Executors.newScheduledThreadPool(threads);
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      Drive drive = new Drive(client, namespace);
      for (int number = 0; number < threads; number++) {
        int own = number;
        executor.scheduleWithFixedDelay(() -> drive.poll(own), 0, periodMillis,
            TimeUnit.MILLISECONDS);
      }
      InputStreamReader bytes = new InputStreamReader(System.in, StandardCharsets.UTF_8);
      BufferedReader lines = new BufferedReader(bytes);
      while (lines.readLine() != null) {
        System.out.println(drive.tally.line());
      }
    }
  }

  private void poll(int number) {
    long begun = tally.begin(number);
    try {
      client.pods().inNamespace(namespace).withLabel("app", "app-3").list();
      tally.done(begun);
    } catch (RuntimeException failure) {
      tally.failed("poller " + number + ": " + failure);
    }
  }
}
