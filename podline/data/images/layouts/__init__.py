"""The layouts of images of one's own, a module each; :data:`podline.recipes.parts.LAYOUTS` names them."""
