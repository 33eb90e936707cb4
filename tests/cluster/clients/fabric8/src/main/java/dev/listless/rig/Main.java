package dev.listless.rig;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Starts the pollers on one client configured from KUBECONFIG alone, and prints what they found. */
public final class Main {
  private Main() {}

  public static void main(String[] arguments) throws InterruptedException, IOException {
    if (arguments.length == 4 && arguments[0].equals("drive")) {
      Drive.run(arguments[1], Integer.parseInt(arguments[2]), Long.parseLong(arguments[3]));
      System.exit(0);
    }
    if (arguments.length == 3 && arguments[0].equals("repeat")) {
      Repeat.run(arguments[1], Long.parseLong(arguments[2]));
    }
    Settings settings = Settings.parse(arguments);
    Result result = new Result();
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      List<Thread> threads = new ArrayList<>();
      for (int number = 0; number < settings.threads(); number++) {
        Thread thread = new Thread(new Poller(client, settings, number, result));
        thread.start();
        threads.add(thread);
      }
      for (Thread thread : threads) {
        thread.join();
      }
    }
    System.out.println(result.line());
    System.exit(0);
  }
}
