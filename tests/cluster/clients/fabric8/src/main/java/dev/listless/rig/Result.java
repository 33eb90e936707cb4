package dev.listless.rig;

import io.fabric8.kubernetes.client.utils.Serialization;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The results of all threads; printed as one line of JSON. */
final class Result {
  private int polls;
  private int writes;
  private int pods;
  private final List<String> misses = new ArrayList<>();
  private final List<String> errors = new ArrayList<>();

  synchronized void polled() {
    polls++;
  }

  synchronized void wrote() {
    writes++;
  }

  synchronized void sawPods(int count) {
    pods += count;
  }

  synchronized void missed(String what) {
    misses.add(what);
  }

  synchronized void failed(String what) {
    errors.add(what);
  }

  synchronized String line() {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("client", "fabric8");
    line.put("polls", polls);
    line.put("writes", writes);
    line.put("pods", pods);
    line.put("misses", misses);
    line.put("errors", errors);
    return Serialization.asJson(line).replaceAll("\\s*\\n\\s*", " ");
  }
}
