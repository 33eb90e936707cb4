package dev.listless.follower;

import java.util.Map;

/** Something that keeps a copy of a collection. */
interface Follower {
  /** The resourceVersion of each object it holds, by name. */
  Map<String, String> held();
}
