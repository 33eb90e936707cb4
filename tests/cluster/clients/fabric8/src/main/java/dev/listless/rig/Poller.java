package dev.listless.rig;

import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/**
 * One thread that lists its own pods every period, as services in the field do, writes now and then,
 * and expects each list to show exactly its own writes.
 *
 * <p>All pods with its value of the label {@code poller} are its own: nobody else writes them, so it
 * knows what every answer must hold.
 */
final class Poller implements Runnable {
  private static final String LABEL = "poller";
  private static final String STATE = "state";

  private final KubernetesClient client;
  private final Settings settings;
  private final int number;
  private final Result result;
  /** The expected annotation {@code state} of every pod, by name; absent means no annotation. */
  private final Map<String, String> expected = new HashMap<>();

  Poller(KubernetesClient client, Settings settings, int number, Result result) {
    this.client = client;
    this.settings = settings;
    this.number = number;
    this.result = result;
  }

  @Override
  public void run() {
    try {
      Thread.sleep(settings.periodMillis() * number / settings.threads());
      // Left over from a run before this one.
      client.pods().inNamespace(settings.namespace()).withName(ownName()).withGracePeriod(0)
          .delete();
      for (Pod pod : list()) {
        expected.put(pod.getMetadata().getName(), state(pod));
      }
      result.sawPods(expected.size());
      long end = System.nanoTime() + settings.seconds() * 1_000_000_000L;
      for (int round = 0; System.nanoTime() < end; round++) {
        if (round % settings.writeEvery() == number % settings.writeEvery()) {
          write(round);
        }
        check(round);
        Thread.sleep(settings.periodMillis());
      }
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    } catch (RuntimeException failure) {
      result.failed("poller " + number + ": " + failure);
    }
  }

  private List<Pod> list() {
    return client
        .pods()
        .inNamespace(settings.namespace())
        .withLabel(LABEL, Integer.toString(number))
        .list()
        .getItems();
  }

  private void check(int round) {
    List<Pod> pods = list();
    result.polled();
    List<String> wrong = new ArrayList<>();
    Map<String, String> seen = new HashMap<>();
    for (Pod pod : pods) {
      seen.put(pod.getMetadata().getName(), state(pod));
    }
    if (seen.size() != pods.size()) {
      wrong.add("a name twice");
    }
    TreeSet<String> names = new TreeSet<>(expected.keySet());
    names.addAll(seen.keySet());
    for (String name : names) {
      boolean known = expected.containsKey(name) && seen.containsKey(name);
      if (!known || !java.util.Objects.equals(expected.get(name), seen.get(name))) {
        wrong.add(name + ": " + expected.get(name) + " expected, got " + seen.get(name)
            + (seen.containsKey(name) ? "" : " (absent)"));
      }
    }
    if (!wrong.isEmpty()) {
      result.missed("poller " + number + " round " + round + ": " + wrong);
    }
  }

  /** Creates, changes and deletes pods in turn; each takes effect before it returns. */
  private void write(int round) {
    String name = ownName();
    String state = "round-" + round;
    switch (round / settings.writeEvery() % 4) {
      case 0 -> {
        client.pods().inNamespace(settings.namespace()).resource(pod(name, state)).create();
        expected.put(name, state);
      }
      case 1 -> change(name, state);
      case 2 -> change(expected.keySet().stream().filter(own -> !own.equals(name)).sorted()
          .findFirst().orElse(name), state);
      default -> {
        client.pods().inNamespace(settings.namespace()).withName(name).withGracePeriod(0).delete();
        expected.remove(name);
      }
    }
    result.wrote();
  }

  private void change(String name, String state) {
    client.pods().inNamespace(settings.namespace()).withName(name).edit(pod ->
        new PodBuilder(pod).editMetadata().addToAnnotations(STATE, state).endMetadata().build());
    expected.put(name, state);
  }

  private Pod pod(String name, String state) {
    return new PodBuilder()
        .withNewMetadata()
        .withName(name)
        .addToLabels(LABEL, Integer.toString(number))
        .addToAnnotations(STATE, state)
        .endMetadata()
        .withNewSpec()
        .addNewContainer()
        .withName("main")
        .withImage("example.com/app:1")
        .endContainer()
        .endSpec()
        .build();
  }

  private String ownName() {
    return "own-" + number;
  }

  private static String state(Pod pod) {
    Map<String, String> annotations = pod.getMetadata().getAnnotations();
    return annotations == null ? null : annotations.get(STATE);
  }
}
