package dev.listless.rig;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;

/** Lists the pods of a namespace for ever, as a service in a pod does, and prints its results. */
final class Repeat {
  private Repeat() {}

  /** Arguments: the namespace, and the period in milliseconds. */
  static void run(String namespace, long periodMillis) throws InterruptedException {
    long lists = 0;
    long failures = 0;
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      while (true) {
        try {
          int items = client.pods().inNamespace(namespace).list().getItems().size();
          lists++;
          System.out.printf("{\"lists\":%d,\"items\":%d,\"failures\":%d}%n", lists, items, failures);
        } catch (RuntimeException failure) {
          failures++;
          System.out.printf("{\"lists\":%d,\"items\":0,\"failures\":%d}%n", lists, failures);
          System.err.println(failure);
        }
        Thread.sleep(periodMillis);
      }
    }
  }
}
