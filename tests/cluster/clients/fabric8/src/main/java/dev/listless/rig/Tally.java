package dev.listless.rig;

import io.fabric8.kubernetes.client.utils.Serialization;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a driver has done so far; told as one line of JSON. */
final class Tally {
  private int operations;
  private final List<Long> cycles = new ArrayList<>();
  private final List<String> errors = new ArrayList<>();

  synchronized void done() {
    operations++;
  }

  synchronized void cycle() {
    cycles.add(System.nanoTime());
  }

  synchronized void failed(String what) {
    errors.add(what);
  }

  /** The period is the mean of all between two cycles. */
  synchronized String line() {
    int last = cycles.size() - 1;
    double period = last > 0 ? (cycles.get(last) - cycles.get(0)) / 1e9 / last : 0;
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("operations", operations);
    line.put("cycles", cycles.size());
    line.put("periodSeconds", period);
    line.put("errors", errors);
    return Serialization.asJson(line).replaceAll("\\s*\\n\\s*", " ");
  }
}
