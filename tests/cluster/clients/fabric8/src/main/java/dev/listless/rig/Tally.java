package dev.listless.rig;

import io.fabric8.kubernetes.client.utils.Serialization;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The work of a driver so far; printed as one line of JSON. */
final class Tally {
  private int operations;
  private int cycles;
  private final Map<Integer, Long> begun = new HashMap<>();
  private final List<Double> gaps = new ArrayList<>();
  private final List<Double> millis = new ArrayList<>();
  private final List<String> errors = new ArrayList<>();

  /** A thread begins its next poll; a round is one of the first thread. Returns the time. */
  synchronized long begin(int thread) {
    long now = System.nanoTime();
    Long last = begun.put(thread, now);
    if (last != null) {
      gaps.add((now - last) / 1e9);
    }
    if (thread == 0) {
      cycles++;
    }
    return now;
  }

  /** Counts a poll that began at a time. */
  synchronized void done(long begun) {
    operations++;
    millis.add((System.nanoTime() - begun) / 1e6);
  }

  synchronized void failed(String what) {
    errors.add(what);
  }

  /** The period is the median time between two polls of one thread. */
  synchronized String line() {
    double period = median(gaps);
    double deviation = median(gaps.stream().map(gap -> Math.abs(gap - period)).toList());
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("operations", operations);
    line.put("cycles", cycles);
    line.put("periodSeconds", period);
    line.put("jitter", period > 0 ? deviation / period : 0);
    line.put("millis", millis);
    line.put("errors", errors);
    return Serialization.asJson(line).replaceAll("\\s*\\n\\s*", " ");
  }

  private static double median(List<Double> values) {
    List<Double> sorted = new ArrayList<>(values);
    Collections.sort(sorted);
    return sorted.isEmpty() ? 0 : sorted.get(sorted.size() / 2);
  }
}
